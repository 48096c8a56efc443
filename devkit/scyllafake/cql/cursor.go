package cql

import "strings"

// MaxDepth is the maximum nesting of values, types, functions and relations.
const MaxDepth = 200

// cursor reads the tokens of a text. Its methods panic with a *SyntaxError.
type cursor struct {
	src   string
	toks  []token
	pos   int // index of the next token
	depth int // of nested rules
}

// kind returns the kind of the next token.
func (p *cursor) kind() kind { return p.toks[p.pos].kind }

// peek returns the kind of the token n after the next.
func (p *cursor) peek(n int) kind {
	if p.pos+n >= len(p.toks) {
		return tEOF
	}
	return p.toks[p.pos+n].kind
}

// next takes a token. The closing tEOF is never passed.
func (p *cursor) next() token {
	t := p.toks[p.pos]
	if t.kind != tEOF {
		p.pos++
	}
	return t
}

// accept takes the next token if it is a k.
func (p *cursor) accept(k kind) bool {
	if p.kind() != k {
		return false
	}
	p.next()
	return true
}

// acceptAll takes the next tokens if they are ks, or none of them.
func (p *cursor) acceptAll(ks ...kind) bool {
	for i, k := range ks {
		if p.peek(i) != k {
			return false
		}
	}
	p.pos += len(ks)
	return true
}

// expect takes a k; follow contains the tokens after it.
func (p *cursor) expect(k kind, follow kindSet) token {
	if p.kind() != k {
		panic(p.mismatch(k, follow))
	}
	return p.next()
}

// enter guards a recursive rule; leave ends it.
func (p *cursor) enter() {
	if p.depth++; p.depth > MaxDepth {
		panic(errorAt(p.src, int(p.toks[p.pos].start), " nested too deeply"))
	}
}

func (p *cursor) leave() { p.depth-- }

// list reads one or more items with commas between them.
func (p *cursor) list(item func()) {
	for item(); p.accept(tComma); {
		item()
	}
}

// text returns a token as in the source.
func (p *cursor) text(t token) string { return p.src[t.start:t.end] }

// unquote returns the content of a string or quoted name.
func (p *cursor) unquote(t token) string {
	s := p.text(t)
	if s[0] == '$' {
		return s[2 : len(s)-2]
	}
	quote := s[:1]
	s = s[1 : len(s)-1]
	if !strings.Contains(s, quote) {
		return s
	}
	return strings.ReplaceAll(s, quote+quote, quote)
}
