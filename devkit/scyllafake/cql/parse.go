// Package cql implements the syntax of CQL in ScyllaDB 5.1: lexer, parser and syntax
// tree. It knows no schema.
//
// It accepts the grammar of ScyllaDB 5.1 (cql3/Cql.g), including its quirks. The parser
// is written by hand, with one function per rule of that grammar, which decides by the
// next few tokens. It reports the same errors at the same places as ScyllaDB's
// generated parser; see errors.go.
package cql

import "sync"

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

// MaxDepth is the maximum nesting of values, types, functions and relations.
const MaxDepth = 200

// parsers keeps token slices between calls.
var parsers = sync.Pool{New: func() any { return new(parser) }}

// maxKept limits the tokens that a pooled parser keeps.
const maxKept = 4096

// parser is the state of one Parse. Its methods panic with a *SyntaxError.
type parser struct {
	src   string
	toks  []token
	pos   int // index of the next token
	depth int
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
	*p = parser{toks: toks}
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

// kind returns the kind of the next token.
func (p *parser) kind() kind { return p.toks[p.pos].kind }

// peek returns the kind of the token n after the next.
func (p *parser) peek(n int) kind {
	if p.pos+n >= len(p.toks) {
		return tEOF
	}
	return p.toks[p.pos+n].kind
}

// next takes a token. The closing tEOF is never passed.
func (p *parser) next() token {
	t := p.toks[p.pos]
	if t.kind != tEOF {
		p.pos++
	}
	return t
}

// accept takes the next token if it is a k.
func (p *parser) accept(k kind) bool {
	if p.kind() != k {
		return false
	}
	p.next()
	return true
}

// acceptAll takes the next tokens if they are ks, or none of them.
func (p *parser) acceptAll(ks ...kind) bool {
	for i, k := range ks {
		if p.peek(i) != k {
			return false
		}
	}
	p.pos += len(ks)
	return true
}

// expect takes a k; follow contains the tokens after it.
func (p *parser) expect(k kind, follow kindSet) token {
	if p.kind() != k {
		panic(p.mismatch(k, follow))
	}
	return p.next()
}

// enter guards a recursive rule; leave ends it.
func (p *parser) enter() {
	if p.depth++; p.depth > MaxDepth {
		panic(errorAt(p.src, int(p.toks[p.pos].start), " nested too deeply"))
	}
}

func (p *parser) leave() { p.depth-- }

// list reads one or more items with commas between them.
func (p *parser) list(item func()) {
	for item(); p.accept(tComma); {
		item()
	}
}
