package cql

import "strings"

// term: a value or a function call.
func (p *parser) term() Term {
	p.enter()
	defer p.leave()
	switch k := p.kind(); {
	case k == tLParen && p.castAhead():
		panic(&Unsupported{What: "type hints"})
	case valueStart[k]:
		return p.value()
	case p.peek(1) == tDot && nameStart[k], funcStart[k]:
		name := p.functionName()
		return FuncCall{Name: name, Args: p.functionArgs()}
	default:
		panic(p.noViable())
	}
}

// castAhead distinguishes the type hint (type) value from the tuple (value).
func (p *parser) castAhead() bool {
	i := p.skipType(p.pos+1, 0)
	return i > 0 && p.toks[i].kind == tRParen && i+1 < len(p.toks) && termStart[p.toks[i+1].kind]
}

func (p *parser) value() Term {
	switch p.kind() {
	case "K_NULL":
		p.next()
		return Null{}
	case tQMark, tColon:
		return p.marker()
	case tLParen:
		p.next()
		return TupleLit{Elems: p.termsUntil(tRParen)}
	case tLBracket:
		p.next()
		if p.accept(tRBracket) {
			return ListLit{}
		}
		return ListLit{Elems: p.termsUntil(tRBracket)}
	case tLBrace:
		return p.braces()
	default:
		return p.constant()
	}
}

// termsUntil reads one or more terms and the closing bracket.
func (p *parser) termsUntil(closing kind) []Term {
	var terms []Term
	p.list(func() { terms = append(terms, p.term()) })
	p.expect(closing, nil)
	return terms
}

// braces: a set or a map.
func (p *parser) braces() Term {
	switch k, next := p.peek(1), p.peek(2); {
	case identStart[k] && next == tColon:
		panic(&Unsupported{What: userTypes})
	case k == tRBrace, valueStart[k]:
	case funcStart[k] && next == tLParen, nameStart[k] && next == tDot:
	default:
		panic(p.noViable())
	}
	p.next()
	if p.accept(tRBrace) {
		return SetLit{}
	}
	first := p.term()
	if p.kind() == tColon {
		return p.mapLiteral(first)
	}
	elems := []Term{first}
	for p.accept(tComma) {
		elems = append(elems, p.term())
	}
	p.expect(tRBrace, nil)
	return SetLit{Elems: elems}
}

// mapLiteral reads the rest of {key: value, …} after its first key.
func (p *parser) mapLiteral(key Term) Term {
	var m MapLit
	for {
		m.Keys = append(m.Keys, key)
		p.expect(tColon, termStart)
		m.Values = append(m.Values, p.term())
		if !p.accept(tComma) {
			break
		}
		key = p.term()
	}
	p.expect(tRBrace, nil)
	return m
}

// literalKinds are the kinds of one-token literals.
var literalKinds = map[kind]LiteralKind{
	tString: LitString, tInteger: LitInteger, tFloat: LitFloat, tBool: LitBool,
	tDuration: LitDuration, tUUID: LitUUID, tHex: LitHex,
}

func (p *parser) constant() Literal {
	switch k := p.kind(); k {
	case tString:
		return Literal{Kind: LitString, Text: p.unquote(p.next())}
	case tHex:
		return Literal{Kind: LitHex, Text: p.text(p.next())[2:]}
	case tInteger, tFloat, tBool, tDuration, tUUID:
		return Literal{Kind: literalKinds[k], Text: p.text(p.next())}
	case "K_NAN", "K_INFINITY":
		return Literal{Kind: LitFloat, Text: p.text(p.next())}
	case tMinus:
		if k := p.peek(1); k == "K_NAN" || k == "K_INFINITY" {
			p.next()
			return Literal{Kind: LitFloat, Text: "-" + p.text(p.next())}
		}
	}
	panic(p.noViable())
}

// marker: ? or :name. A repeated name is the same marker.
func (p *parser) marker() Term {
	name := ""
	if p.next().kind == tColon {
		name = p.ident()
		for i, known := range p.binds {
			if known == name {
				return Marker{Index: i}
			}
		}
	}
	p.binds = append(p.binds, name)
	return Marker{Index: len(p.binds) - 1}
}

func (p *parser) markerAhead() bool { return p.kind() == tQMark || p.kind() == tColon }

// intValue: an integer or a marker.
func (p *parser) intValue() Term {
	if p.markerAhead() {
		return p.marker()
	}
	if p.kind() != tInteger {
		panic(p.noViable())
	}
	return p.constant()
}

// functionName: [keyspace.]name.
func (p *parser) functionName() Name {
	var n Name
	if nameStart[p.kind()] && p.peek(1) == tDot {
		n.Keyspace = p.objectName("keyspace")
		p.next()
	}
	if !funcStart[p.kind()] {
		panic(p.noViable())
	}
	t := p.next()
	if t.kind == tQuoted {
		n.Name = p.unquote(t)
	} else {
		n.Name = strings.ToLower(p.text(t))
	}
	return n
}

// functionArgs: the terms in parentheses.
func (p *parser) functionArgs() []Term {
	if p.kind() != tLParen || p.peek(1) != tRParen && !termStart[p.peek(1)] {
		panic(p.noViable())
	}
	p.next()
	if p.accept(tRParen) {
		return nil
	}
	return p.termsUntil(tRParen)
}
