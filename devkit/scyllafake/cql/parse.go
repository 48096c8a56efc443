// Package cql implements the syntax of CQL in ScyllaDB 5.1: lexer, parser and syntax
// tree. It knows no schema.
//
// It accepts the grammar of ScyllaDB 5.1 (cql3/Cql.g), including its quirks. The parser
// is written by hand, with one function per rule of that grammar, which decides by the
// next few tokens. It reports the same errors at the same places as ScyllaDB's
// generated parser; see errors.go.
package cql

import (
	"sync"
)

// Parse parses one statement, with or without closing semicolons. Every error is a
// *SyntaxError. It is safe for concurrent use.
//
// It takes time linear in the length of text; brackets nested deeper than MaxDepth are
// refused.
func Parse(text string) (stmt Statement, err error) {
	p := parsers.Get().(*parser)
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(*SyntaxError)
			if !ok {
				panic(r)
			}
			stmt, err = nil, e
		}
		p.reset()
		parsers.Put(p)
	}()
	p.src = text
	var lexErr *SyntaxError
	if p.toks, lexErr = lex(text, p.toks); lexErr != nil {
		return nil, lexErr
	}
	return p.query(), nil
}

// parsers keeps token slices between calls.
var parsers = sync.Pool{New: func() any { return new(parser) }}

// maxKept limits the tokens that a pooled parser keeps.
const maxKept = 4096

// parser is the state of one Parse. Its methods panic with a *SyntaxError.
type parser struct {
	cursor

	binds []string
	// refused is set when the text uses a construct of the grammar without a syntax
	// tree in this package.
	refused string
}

func (p *parser) reset() {
	toks := p.toks[:0]
	if cap(toks) > maxKept {
		toks = nil
	}
	*p = parser{cursor: cursor{toks: toks}}
}

// query: cqlStatement ';'* EOF.
func (p *parser) query() Statement {
	stmt := p.statement()
	for p.accept(tSemicolon) {
	}
	p.expect(tEOF, kindSet{})
	p.setBinds(stmt)
	if p.refused != "" {
		return &Unsupported{What: p.refused}
	}
	return stmt
}

// setBinds gives a statement the markers found.
func (p *parser) setBinds(stmt Statement) {
	b := Binds{Names: p.binds}
	switch s := stmt.(type) {
	case *Select:
		s.Binds = b
	case *Insert:
		s.Binds = b
	case *Update:
		s.Binds = b
	case *Delete:
		s.Binds = b
	case *Batch:
		s.Binds = b
	}
}

// statement: decided by its first words.
func (p *parser) statement() Statement {
	switch p.kind() {
	case kSelect:
		return p.selectStatement()
	case kInsert:
		return p.insert()
	case kUpdate:
		return p.update()
	case kDelete:
		return p.delete()
	case kBegin:
		return p.batch()
	case kUse:
		p.next()
		return &Use{Keyspace: p.objectName("keyspace")}
	case kTruncate:
		p.next()
		p.accept(kColumnfamily)
		return &Truncate{Table: p.tableName()}
	case kCreate:
		return p.create()
	case kAlter:
		return p.alter()
	case kDrop:
		return p.drop()
	}
	if stmt := p.unsupported(); stmt != nil {
		return stmt
	}
	panic(p.noViable())
}

// unsupportedStatements are the beginnings of statements of the grammar that this
// server refuses. Longer ones precede shorter ones.
var unsupportedStatements = []struct {
	words []kind
	what  string
}{
	{[]kind{kCreate, kOr, kReplace, kFunction}, "CREATE FUNCTION"},
	{[]kind{kCreate, kFunction}, "CREATE FUNCTION"},
	{[]kind{kDrop, kFunction}, "DROP FUNCTION"},
	{[]kind{kCreate, kOr, kReplace, kAggregate}, "CREATE AGGREGATE"},
	{[]kind{kCreate, kAggregate}, "CREATE AGGREGATE"},
	{[]kind{kDrop, kAggregate}, "DROP AGGREGATE"},
	{[]kind{kCreate, kUser}, "CREATE USER"},
	{[]kind{kAlter, kUser}, "ALTER USER"},
	{[]kind{kDrop, kUser}, "DROP USER"},
	{[]kind{kList, kUsers}, "LIST USERS"},
	{[]kind{kCreate, kRole}, "CREATE ROLE"},
	{[]kind{kAlter, kRole}, "ALTER ROLE"},
	{[]kind{kDrop, kRole}, "DROP ROLE"},
	{[]kind{kList, kRoles}, "LIST ROLES"},
	{[]kind{kCreate, kService, kLevel}, "CREATE SERVICE LEVEL"},
	{[]kind{kCreate, kServiceLevel}, "CREATE SERVICE LEVEL"},
	{[]kind{kAlter, kService, kLevel}, "ALTER SERVICE LEVEL"},
	{[]kind{kAlter, kServiceLevel}, "ALTER SERVICE LEVEL"},
	{[]kind{kDrop, kService, kLevel}, "DROP SERVICE LEVEL"},
	{[]kind{kDrop, kServiceLevel}, "DROP SERVICE LEVEL"},
	{[]kind{kAttach}, "ATTACH SERVICE LEVEL"},
	{[]kind{kDetach}, "DETACH SERVICE LEVEL"},
	{[]kind{kList, kService, kLevel}, "LIST SERVICE LEVEL"},
	{[]kind{kList, kServiceLevel}, "LIST SERVICE LEVEL"},
	{[]kind{kList, kAttached}, "LIST SERVICE LEVEL"},
	{[]kind{kList, kAll}, "LIST"}, // permissions or service levels
	{[]kind{kList, kCreate}, "LIST PERMISSIONS"},
	{[]kind{kList, kAlter}, "LIST PERMISSIONS"},
	{[]kind{kList, kDrop}, "LIST PERMISSIONS"},
	{[]kind{kList, kSelect}, "LIST PERMISSIONS"},
	{[]kind{kList, kModify}, "LIST PERMISSIONS"},
	{[]kind{kList, kAuthorize}, "LIST PERMISSIONS"},
	{[]kind{kList, kDescribe}, "LIST PERMISSIONS"},
	{[]kind{kGrant}, "GRANT"},
	{[]kind{kRevoke}, "REVOKE"},
	{[]kind{kPrune, kMaterialized, kView}, "PRUNE MATERIALIZED VIEW"},
}

// unsupported recognises a statement by its first words and skips the rest of it
// unchecked; nil if it is none of these.
func (p *parser) unsupported() Statement {
	for _, u := range unsupportedStatements {
		if !p.acceptAll(u.words...) {
			continue
		}
		for p.kind() != tEOF && p.kind() != tSemicolon {
			p.next()
		}
		return &Unsupported{What: u.what}
	}
	return nil
}
