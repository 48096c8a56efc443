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
	p.expect(tEOF, nil)
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
	case "K_SELECT":
		return p.selectStatement()
	case "K_INSERT":
		return p.insert()
	case "K_UPDATE":
		return p.update()
	case "K_DELETE":
		return p.delete()
	case "K_BEGIN":
		return p.batch()
	case "K_USE":
		p.next()
		return &Use{Keyspace: p.objectName("keyspace")}
	case "K_TRUNCATE":
		p.next()
		p.accept("K_COLUMNFAMILY")
		return &Truncate{Table: p.tableName()}
	case "K_CREATE":
		return p.create()
	case "K_ALTER":
		return p.alter()
	case "K_DROP":
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
	{"secondary indexes", [][]kind{{"K_CREATE", "K_INDEX"}, {"K_CREATE", "K_CUSTOM"}, {"K_DROP", "K_INDEX"}}},
	{userTypes, [][]kind{{"K_CREATE", "K_TYPE"}, {"K_ALTER", "K_TYPE"}, {"K_DROP", "K_TYPE"}}},
	{"materialized views", [][]kind{{"K_CREATE", "K_MATERIALIZED"}, {"K_ALTER", "K_MATERIALIZED"}, {"K_DROP", "K_MATERIALIZED"}, {"K_PRUNE"}}},
	{"user-defined functions and aggregates", [][]kind{
		{"K_CREATE", "K_OR"}, {"K_CREATE", "K_FUNCTION"}, {"K_DROP", "K_FUNCTION"}, {"K_CREATE", "K_AGGREGATE"}, {"K_DROP", "K_AGGREGATE"},
	}},
	{"ALTER KEYSPACE", [][]kind{{"K_ALTER", "K_KEYSPACE"}}},
	{"service levels", [][]kind{
		{"K_CREATE", "K_SERVICE"},
		{"K_CREATE", "K_SERVICE_LEVEL"},
		{"K_ALTER", "K_SERVICE"},
		{"K_ALTER", "K_SERVICE_LEVEL"},
		{"K_DROP", "K_SERVICE"},
		{"K_DROP", "K_SERVICE_LEVEL"},
		{"K_ATTACH"},
		{"K_DETACH"},
		{"K_LIST", "K_SERVICE"},
		{"K_LIST", "K_SERVICE_LEVEL"},
		{"K_LIST", "K_ATTACHED"},
	}},
	{"roles and permissions", [][]kind{
		{"K_CREATE", "K_USER"}, {"K_ALTER", "K_USER"}, {"K_DROP", "K_USER"}, {"K_CREATE", "K_ROLE"}, {"K_ALTER", "K_ROLE"}, {"K_DROP", "K_ROLE"}, {"K_LIST"}, {"K_GRANT"}, {"K_REVOKE"},
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
