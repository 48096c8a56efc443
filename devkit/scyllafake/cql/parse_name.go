package cql

import "strings"

// text returns a token as in the source.
func (p *parser) text(t token) string { return p.src[t.start:t.end] }

// unquoted returns the content of a string or quoted name.
func (p *parser) unquoted(t token) string {
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

// identText returns the name of an identifier token: quoted ones keep their case.
func (p *parser) identText(t token) string {
	if t.kind == tQuoted {
		return p.unquoted(t)
	}
	return strings.ToLower(p.text(t))
}

// ident reads the name of a column, field, property or similar.
func (p *parser) ident() string {
	if !identStart.has(p.kind()) {
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
	p.expect(tRParen, kindSet{})
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

// qualified reads [keyspace.]name.
func (p *parser) qualified(what string) Name {
	if nameStart.has(p.kind()) && p.peek(1) == tDot {
		ks := p.objectName("keyspace")
		p.next()
		return Name{Keyspace: ks, Name: p.objectName(what)}
	}
	return Name{Name: p.objectName(what)}
}

func (p *parser) tableName() Name { return p.qualified("table") }

// userTypeName reads [keyspace.]name of a user type.
func (p *parser) userTypeName() Name {
	var n Name
	if identStart.has(p.kind()) && p.peek(1) == tDot {
		n.Keyspace = p.ident()
		p.next()
	}
	if !userTypeStart.has(p.kind()) {
		panic(p.noViable())
	}
	t := p.next()
	if t.kind == tIdent && reservedTypeNames[p.text(t)] {
		panic(p.refuse("Invalid (reserved) user type name " + p.text(t)))
	}
	n.Name = p.identText(t)
	return n
}

// reservedTypeNames may become native types later. ScyllaDB compares them as written,
// so BYTE is a user type.
var reservedTypeNames = map[string]bool{
	"byte": true, "complex": true, "enum": true, "interval": true, "macaddr": true, "bitstring": true,
}

// ifNotExists reads an optional IF NOT EXISTS.
func (p *parser) ifNotExists() bool {
	if !p.accept(kIf) {
		return false
	}
	p.expect(kNot, setOf(kExists))
	p.expect(kExists, kindSet{})
	return true
}

// ifExists reads an optional IF EXISTS.
func (p *parser) ifExists() bool {
	if !p.accept(kIf) {
		return false
	}
	p.expect(kExists, kindSet{})
	return true
}
