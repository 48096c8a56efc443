package cql

import "strings"

func (p *parser) selectStatement() *Select {
	p.next()
	s := &Select{}
	if p.modifierAhead("K_JSON") {
		panic(&Unsupported{What: "JSON"})
	}
	if p.modifierAhead("K_DISTINCT") {
		p.next()
		s.Distinct = true
	}
	p.selectClause(s)
	p.expect("K_FROM", nameStart)
	s.From = p.tableName()
	if p.accept("K_WHERE") {
		s.Where = p.where()
	}
	p.selectTail(s)
	return s
}

// selectTail reads the clauses after WHERE, in this order only.
func (p *parser) selectTail(s *Select) {
	if p.accept("K_GROUP") {
		panic(&Unsupported{What: "GROUP BY"})
	}
	if p.accept("K_ORDER") {
		p.expect("K_BY", identStart)
		p.list(func() { s.OrderBy = append(s.OrderBy, p.orderBy()) })
	}
	if p.accept("K_PER") {
		p.expect("K_PARTITION", newKindSet("K_LIMIT"))
		p.expect("K_LIMIT", newKindSet(tInteger, tQMark, tColon))
		s.PerPartitionLimit = p.intValue()
	}
	if p.accept("K_LIMIT") {
		s.Limit = p.intValue()
	}
	if p.accept("K_ALLOW") {
		p.expect("K_FILTERING", nil)
		s.AllowFiltering = true
	}
	if p.accept("K_BYPASS") {
		p.expect("K_CACHE", nil)
		s.BypassCache = true
	}
	u := p.using()
	s.Timeout, s.TTL, s.Timestamp = u.Timeout, u.TTL, u.Timestamp
}

func (p *parser) orderBy() Order {
	o := Order{Column: p.ident()}
	if !p.accept("K_ASC") {
		o.Desc = p.accept("K_DESC")
	}
	return o
}

// modifierAhead distinguishes the keyword JSON or DISTINCT from a column or function of
// that name by the next tokens.
func (p *parser) modifierAhead(k kind) bool {
	if p.kind() != k {
		return false
	}
	switch p.peek(1) {
	case "K_FROM", tComma, tDot, tLParen:
		return false
	case "K_AS":
		// "JSON AS FROM" selects a column called as; "JSON AS x" names the column json x.
		next := p.peek(2)
		return next == "K_FROM" || next == tComma || next == tDot || next == tLParen
	}
	return true
}

func (p *parser) selectClause(s *Select) {
	if p.accept(tStar) {
		s.Star = true
		return
	}
	p.list(func() { s.Selectors = append(s.Selectors, p.selector()) })
}

func (p *parser) selector() Selector {
	sel := Selector{Expr: p.parseSelector()}
	if p.accept("K_AS") {
		sel.Alias = p.ident()
	}
	return sel
}

// selectorFollow contains the tokens after a column's name in a select clause.
var selectorFollow = newKindSet(tDot, tComma, tRParen, "K_FROM", "K_AS")

// parseSelector: a column or a function.
func (p *parser) parseSelector() Term {
	p.enter()
	defer p.leave()
	t := p.selectable()
	if p.kind() == tDot {
		panic(&Unsupported{What: userTypes})
	}
	return t
}

func (p *parser) selectable() Term {
	k, next := p.kind(), p.peek(1)
	switch {
	case k == "K_CAST" && next == tLParen:
		panic(&Unsupported{What: "CAST"})
	case k == "K_COUNT" && next == tLParen && (p.peek(2) == tStar || p.peek(2) == tInteger):
		return p.countRows()
	case (k == "K_WRITETIME" || k == "K_TTL") && next == tLParen:
		name := strings.ToLower(p.text(p.next()))
		p.next()
		arg := ColumnRef{Column: p.ident()}
		p.expect(tRParen, nil)
		return FuncCall{Name: Name{Name: name}, Args: []Term{arg}}
	case next == tLParen && funcStart[k], p.functionAhead():
		return p.selectFunction()
	case identStart[k] && selectorFollow[next]:
		return ColumnRef{Column: p.ident()}
	default:
		panic(p.noViable())
	}
}

// functionAhead distinguishes keyspace.function(…) from column.field.
func (p *parser) functionAhead() bool {
	return nameStart[p.kind()] && p.peek(1) == tDot && funcStart[p.peek(2)] && p.peek(3) == tLParen
}

func (p *parser) countRows() Term {
	p.next()
	p.next()
	if t := p.next(); t.kind == tInteger && p.text(t) != "1" {
		panic(p.refuse("Only COUNT(1) is supported, got COUNT(" + p.text(t) + ")"))
	}
	p.expect(tRParen, nil)
	return FuncCall{Name: Name{Name: "count"}}
}

func (p *parser) selectFunction() Term {
	f := FuncCall{Name: p.functionName()}
	at := p.pos
	p.next()
	if p.accept(tRParen) {
		return f
	}
	if k := p.kind(); k != "K_CAST" && k != "K_TOKEN" && !nameStart[k] {
		panic(p.noViableAt(at))
	}
	p.list(func() { f.Args = append(f.Args, p.parseSelector()) })
	p.expect(tRParen, nil)
	return f
}
