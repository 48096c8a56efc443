package cql

import (
	"strings"
)

// identText returns the name of an identifier token: quoted ones keep their case.
func (p *parser) identText(t token) string {
	if t.kind == tQuoted {
		return p.unquote(t)
	}
	return strings.ToLower(p.text(t))
}

// ident reads the name of a column, field, property or similar.
func (p *parser) ident() string {
	if !identStart[p.kind()] {
		panic(p.noViable())
	}
	return p.identText(p.next())
}

// identList reads names with commas between them.
func (p *parser) identList() []string {
	var names []string
	p.list(func() { names = append(names, p.ident()) })
	return names
}

// parenIdents reads (a, b).
func (p *parser) parenIdents() []string {
	p.expect(tLParen, identStart)
	names := p.identList()
	p.expect(tRParen, nil)
	return names
}

// objectName reads the name of a keyspace, table or index: what is its kind in the
// message that refuses a marker.
func (p *parser) objectName(what string) string {
	if p.kind() == tQMark {
		panic(p.refuse("Bind variables cannot be used for " + what + " names"))
	}
	return p.ident()
}

// parseQualifiedName reads [keyspace.]name.
func (p *parser) parseQualifiedName(what string) Name {
	if nameStart[p.kind()] && p.peek(1) == tDot {
		ks := p.objectName("keyspace")
		p.next()
		return Name{Keyspace: ks, Name: p.objectName(what)}
	}
	return Name{Name: p.objectName(what)}
}

func (p *parser) tableName() Name { return p.parseQualifiedName("table") }

// ifNotExists reads an optional IF NOT EXISTS.
func (p *parser) ifNotExists() bool {
	if !p.accept("K_IF") {
		return false
	}
	p.expect("K_NOT", newKindSet("K_EXISTS"))
	p.expect("K_EXISTS", nil)
	return true
}

// ifExists reads an optional IF EXISTS.
func (p *parser) ifExists() bool {
	if !p.accept("K_IF") {
		return false
	}
	p.expect("K_EXISTS", nil)
	return true
}

// dataType reads a type and returns its text.
func (p *parser) dataType() string {
	end := p.skipType(p.pos, 0)
	if end < 0 {
		panic(p.noViable())
	}
	text := p.src[p.toks[p.pos].start:p.toks[end-1].end]
	p.pos = end
	return text
}

// typeParameters returns the number of types between < and > after k: -1 is any number.
func typeParameters(k kind) int {
	switch k {
	case "K_LIST", "K_SET", "K_FROZEN":
		return 1
	case "K_MAP":
		return 2
	case "K_TUPLE":
		return -1
	default:
		return 0
	}
}

// skipType returns the index of the token after a type that begins at token i, or -1 if
// none does.
func (p *parser) skipType(i, depth int) int {
	k := p.toks[i].kind
	if depth > MaxDepth || !identStart[k] && k != "K_SET" {
		return -1
	}
	i++
	if p.toks[i].kind == tDot {
		panic(&Unsupported{What: userTypes})
	}
	if p.toks[i].kind != tLess || typeParameters(k) == 0 {
		return i
	}
	for {
		if i = p.skipType(i+1, depth+1); i < 0 {
			return -1
		}
		switch p.toks[i].kind {
		case tComma:
		case tGreater:
			return i + 1
		default:
			return -1
		}
	}
}
