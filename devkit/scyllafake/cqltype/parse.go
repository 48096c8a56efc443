package cqltype

import (
	"strings"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
)

// Parse parses the CQL text of a type, as in CREATE TABLE.
//
// Inside frozen<> and inside tuples everything is frozen; a collection that is not
// frozen inside a collection is refused. Errors are *cqlerr.Error.
func Parse(text string) (*Type, error) {
	p := typeParser{text: text}
	t, err := p.parse(false)
	if err != nil {
		return nil, err
	}
	if p.skipSpace(); p.pos < len(text) {
		return nil, p.syntax()
	}
	return t, nil
}

type typeParser struct {
	text string
	pos  int
}

func (p *typeParser) syntax() error {
	return cqlerr.New(cqlerr.Syntax, "line 1:%d no viable alternative in type '%s'", p.pos, p.text)
}

func (p *typeParser) skipSpace() {
	for p.pos < len(p.text) && strings.IndexByte(" \t\r\n", p.text[p.pos]) >= 0 {
		p.pos++
	}
}

func (p *typeParser) accept(c byte) bool {
	p.skipSpace()
	if p.pos < len(p.text) && p.text[p.pos] == c {
		p.pos++
		return true
	}
	return false
}

// ident reads an identifier; unquoted ones are folded to lower case.
func (p *typeParser) ident() (name string, quoted bool, err error) {
	p.skipSpace()
	start := p.pos
	if p.pos < len(p.text) && p.text[p.pos] == '"' {
		for p.pos++; p.pos < len(p.text); p.pos++ {
			if p.text[p.pos] != '"' {
				continue
			}
			if p.pos+1 < len(p.text) && p.text[p.pos+1] == '"' {
				p.pos++
				continue
			}
			p.pos++
			return strings.ReplaceAll(p.text[start+1:p.pos-1], `""`, `"`), true, nil
		}
		return "", false, p.syntax()
	}
	for p.pos < len(p.text) && isIdentByte(p.text[p.pos]) {
		p.pos++
	}
	if p.pos == start {
		return "", false, p.syntax()
	}
	return strings.ToLower(p.text[start:p.pos]), false, nil
}

func isIdentByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// parse reads one type. In a frozen context nested types need no frozen<> of their own.
func (p *typeParser) parse(frozen bool) (*Type, error) {
	p.skipSpace()
	start := p.pos
	name, quoted, err := p.ident()
	if err != nil {
		return nil, err
	}
	if !quoted && p.accept('<') {
		return p.parametric(name, start, frozen)
	}
	if !quoted {
		if t, ok := primitives[name]; ok {
			return t, nil
		}
	}
	if name == "counter" && !quoted {
		return nil, cqlerr.Unsupported("counters")
	}
	return nil, cqlerr.Unsupported("the type " + name + ": it is none of CQL's own, and user-defined types are not imitated")
}

// args reads the parameters of a parametric type up to its closing bracket.
func (p *typeParser) args(frozen bool) ([]*Type, error) {
	var out []*Type
	for {
		t, err := p.parse(frozen)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
		if p.accept('>') {
			return out, nil
		}
		if !p.accept(',') {
			return nil, p.syntax()
		}
	}
}

var arity = map[string]int{"frozen": 1, "list": 1, "set": 1, "map": 2}

func (p *typeParser) parametric(name string, start int, frozen bool) (*Type, error) {
	n, known := arity[name]
	if !known && name != "tuple" {
		return nil, p.syntax()
	}
	args, err := p.args(frozen || name == "frozen" || name == "tuple")
	if err != nil {
		return nil, err
	}
	if known && len(args) != n {
		return nil, p.syntax()
	}
	text := squeeze(p.text[start:p.pos])
	switch name {
	case "frozen":
		if t := args[0]; t.IsCollection() || t.Kind == Tuple {
			return t.Freeze(), nil
		}
		return nil, cqlerr.Invalidf(
			"frozen<> is only allowed on collections, tuples, and user-defined types (got %s)", args[0])
	case "tuple":
		return NewTuple(args...), nil
	}
	for _, a := range args {
		if a.IsMultiCell() {
			return nil, cqlerr.Invalidf("Non-frozen user types or collections are not allowed inside collections: %s", text)
		}
	}
	if name != "list" && !args[0].IsOrdered() && !args[0].containsDuration() {
		return nil, cqlerr.Unsupported("sets and maps by values of type " + args[0].String())
	}
	var t *Type
	switch name {
	case "list":
		t = NewList(args[0])
	case "set":
		if args[0].containsDuration() {
			return nil, cqlerr.Invalidf("Durations are not allowed inside sets: %s", text)
		}
		t = NewSet(args[0])
	case "map":
		if args[0].containsDuration() {
			return nil, cqlerr.Invalidf("Durations are not allowed as map keys: %s", text)
		}
		t = NewMap(args[0], args[1])
	}
	if frozen {
		t = t.Freeze()
	}
	return t, nil
}

// squeeze normalises the white space of a type's text as in messages.
func squeeze(text string) string {
	text = strings.Join(strings.Fields(text), "")
	return strings.ReplaceAll(text, ",", ", ")
}
