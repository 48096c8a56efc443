package cql

import (
	"strings"
)

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

// dataType reads a type and returns its text: lower case except for quoted names, with
// ", " between parameters.
func (p *parser) dataType() string {
	if native := p.kind(); nativeTypes.has(native) && p.peek(1) != tDot {
		return strings.ToLower(p.text(p.next()))
	}
	var b strings.Builder
	p.writeType(&b)
	return b.String()
}

// writeType writes a type to b and reports whether it is a native one.
func (p *parser) writeType(b *strings.Builder) (native bool) {
	p.enter()
	defer p.leave()
	k := p.kind()
	switch {
	case p.peek(1) == tLess && typeParameters(k) != 0:
		p.writeParametric(b, k)
	case identStart.has(k) && p.peek(1) == tDot:
		writeTypeName(b, p.userTypeName())
	case nativeTypes.has(k):
		b.WriteString(strings.ToLower(p.text(p.next())))
		return true
	case k == kEmpty:
		panic(p.refuse("Invalid (reserved) user type name empty"))
	case userTypeStart.has(k):
		writeTypeName(b, p.userTypeName())
	default:
		panic(p.noViable())
	}
	return false
}

// typeParameters returns the number of types between < and > after k: -1 is any number.
func typeParameters(k kind) int {
	switch k {
	case kList, kSet, kFrozen:
		return 1
	case kMap:
		return 2
	case kTuple:
		return -1
	default:
		return 0
	}
}

func (p *parser) writeParametric(b *strings.Builder, k kind) {
	b.WriteString(strings.ToLower(p.text(p.next())))
	p.next()
	b.WriteByte('<')
	start := b.Len()
	native := p.writeType(b)
	for n := typeParameters(k); ; {
		if n--; n == 0 || n < 0 && p.kind() != tComma {
			break
		}
		p.expect(tComma, kindSet{})
		b.WriteString(", ")
		p.writeType(b)
	}
	p.expect(tGreater, kindSet{})
	if k == kFrozen && native {
		panic(p.refuse("frozen<> is only allowed on collections, tuples, and user-defined types (got " + b.String()[start:] + ")"))
	}
	b.WriteByte('>')
}

// writeTypeName writes a user type's name in a form that parses to the same.
func writeTypeName(b *strings.Builder, n Name) {
	if n.Keyspace != "" {
		writeIdent(b, n.Keyspace)
		b.WriteByte('.')
	}
	writeIdent(b, n.Name)
}

func writeIdent(b *strings.Builder, name string) {
	plain := name != "" && 'a' <= name[0] && name[0] <= 'z'
	for i := 0; plain && i < len(name); i++ {
		plain = isIdent(name[i]) && (name[i] < 'A' || name[i] > 'Z')
	}
	if _, keyword := keywordOf[name]; plain && !keyword {
		b.WriteString(name)
		return
	}
	b.WriteByte('"')
	b.WriteString(strings.ReplaceAll(name, `"`, `""`))
	b.WriteByte('"')
}

// skipType returns the index of the token after a type that begins at token i, or -1 if
// none does.
func (p *parser) skipType(i, depth int) int {
	k := p.toks[i].kind
	if depth > MaxDepth || !identStart.has(k) && k != kSet {
		return -1
	}
	i++
	if p.toks[i].kind == tDot {
		if !userTypeStart.has(p.toks[i+1].kind) {
			return -1
		}
		return i + 2
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
