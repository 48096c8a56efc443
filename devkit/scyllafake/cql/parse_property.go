package cql

import "fmt"

// properties: name = value joined by AND.
func (p *parser) properties() []Property {
	props := []Property{p.property(nil)}
	for p.accept("K_AND") {
		props = append(props, p.property(props))
	}
	return props
}

// property reads one property; seen are those before it.
func (p *parser) property(seen []Property) Property {
	prop := Property{Name: p.ident()}
	p.expect(tEqual, constants.union(identStart).union(newKindSet(tLBrace)))
	switch k := p.kind(); {
	case k == tLBrace:
		prop.IsMap = true
		prop.Map = p.propertyMap()
	case constants[k]:
		prop.Value = p.constant()
	case k == "K_NULL", identStart[k] && k != tIdent && k != tQuoted:
		prop.Value = Literal{Kind: LitString, Text: p.text(p.next())}
	default:
		panic(p.noViable())
	}
	for _, other := range seen {
		if other.Name == prop.Name {
			panic(p.refuse(fmt.Sprintf("Multiple definition for property '%s'", prop.Name)))
		}
	}
	return prop
}

// propertyMap: {'a': 'b', …}. The grammar accepts any terms in it, but all except
// constants are refused.
func (p *parser) propertyMap() []PropertyEntry {
	p.next()
	var entries []PropertyEntry
	if p.accept(tRBrace) {
		return entries
	}
	var invalid *SyntaxError
	p.list(func() {
		k, keyOK := p.term().(Literal)
		p.expect(tColon, termStart)
		v, valueOK := p.term().(Literal)
		switch {
		case invalid != nil:
		case !keyOK:
			invalid = p.refuse("Invalid property name")
		case !valueOK:
			invalid = p.refuse("Invalid property value for property: " + k.Text)
		}
		entries = append(entries, PropertyEntry{Key: k, Value: v})
	})
	p.expect(tRBrace, nil)
	if invalid != nil {
		panic(invalid)
	}
	return entries
}

// tableProperties reads the WITH clause of CREATE TABLE, which has two elements of
// its own.
func (p *parser) tableProperties() (with []Property, order []Order, compact bool) {
	if !p.accept("K_WITH") {
		return nil, nil, false
	}
	for {
		switch {
		case p.kind() == "K_COMPACT" && p.peek(1) == "K_STORAGE":
			p.next()
			p.next()
			compact = true
		case p.kind() == "K_CLUSTERING" && p.peek(1) == "K_ORDER":
			p.next()
			p.next()
			order = append(order, p.clusteringOrder()...)
		default:
			with = append(with, p.property(with))
		}
		if !p.accept("K_AND") {
			return with, order, compact
		}
	}
}

// clusteringOrder reads BY (a ASC, b DESC).
func (p *parser) clusteringOrder() []Order {
	p.expect("K_BY", newKindSet(tLParen))
	p.expect(tLParen, identStart)
	var orders []Order
	p.list(func() {
		o := Order{Column: p.ident()}
		switch {
		case p.accept("K_DESC"):
			o.Desc = true
		case !p.accept("K_ASC"):
			panic(p.noViable())
		}
		orders = append(orders, o)
	})
	p.expect(tRParen, nil)
	return orders
}
