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
// *SyntaxError. The result is an *Unsupported as soon as the text uses a feature that the
// server lacks; what follows is not checked. It is safe for concurrent use.
//
// It takes time linear in the length of text; brackets nested deeper than MaxDepth are
// refused.
func Parse(text string) (stmt Statement, err error) {
	p := parsers.Get().(*parser)
	defer func() {
		switch r := recover().(type) {
		case nil:
		case *SyntaxError:
			stmt, err = nil, r
		case *Unsupported:
			stmt, err = r, nil
		default:
			panic(r)
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

// parser is the state of one Parse. Its methods panic with a *SyntaxError, or with an
// *Unsupported.
type parser struct {
	cursor

	binds []string
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
	p.checkSupported()
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
	panic(p.noViable())
}

// unsupportedStatements are the features of ScyllaDB that this server lacks as a whole,
// and how their statements begin.
var unsupportedStatements = []struct {
	feature string
	starts  [][]kind
}{
	{"secondary indexes", [][]kind{{kCreate, kIndex}, {kCreate, kCustom}, {kDrop, kIndex}}},
	{userTypes, [][]kind{{kCreate, kType}, {kAlter, kType}, {kDrop, kType}}},
	{"materialized views", [][]kind{{kCreate, kMaterialized}, {kAlter, kMaterialized}, {kDrop, kMaterialized}, {kPrune}}},
	{"user-defined functions and aggregates", [][]kind{
		{kCreate, kOr}, {kCreate, kFunction}, {kDrop, kFunction}, {kCreate, kAggregate}, {kDrop, kAggregate},
	}},
	{"service levels", [][]kind{
		{kCreate, kService},
		{kCreate, kServiceLevel},
		{kAlter, kService},
		{kAlter, kServiceLevel},
		{kDrop, kService},
		{kDrop, kServiceLevel},
		{kAttach},
		{kDetach},
		{kList, kService},
		{kList, kServiceLevel},
		{kList, kAttached},
	}},
	{"roles and permissions", [][]kind{
		{kCreate, kUser}, {kAlter, kUser}, {kDrop, kUser}, {kCreate, kRole}, {kAlter, kRole}, {kDrop, kRole}, {kList}, {kGrant}, {kRevoke},
	}},
}

const userTypes = "user-defined types"

// checkSupported refuses a statement by its first words; the rest of it is not checked.
func (p *parser) checkSupported() {
	for _, u := range unsupportedStatements {
		for _, words := range u.starts {
			if p.acceptAll(words...) {
				panic(&Unsupported{What: u.feature})
			}
		}
	}
}
