package cql

// where: relations joined by AND.
func (p *parser) where() []Relation {
	rels := []Relation{p.relation()}
	for p.accept("K_AND") {
		rels = append(rels, p.relation())
	}
	return rels
}

// relation: one condition of a WHERE clause.
func (p *parser) relation() Relation {
	p.enter()
	defer p.leave()
	switch k := p.kind(); {
	case k == "K_TOKEN":
		p.next()
		r := Relation{Token: true, Columns: p.parenIdents()}
		r.Op = p.relationOp()
		r.Value = p.term()
		return r
	case k == tLParen && p.tupleAhead():
		return p.tupleRelation()
	case k == tLParen:
		if next := p.peek(1); next != tLParen && next != "K_TOKEN" && !identStart[next] {
			panic(p.noViable())
		}
		p.next()
		r := p.relation()
		p.expect(tRParen, nil)
		return r
	case identStart[k]:
		return p.columnRelation()
	default:
		panic(p.noViable())
	}
}

// columnRelation: a relation that begins with a column's name.
func (p *parser) columnRelation() Relation {
	at, op := p.pos, p.peek(1)
	if op == "K_IN" && p.peek(2) != tLParen && p.peek(2) != tQMark && p.peek(2) != tColon {
		panic(p.noViable())
	}
	r := Relation{Columns: []string{p.ident()}}
	switch {
	case relationOps[op]:
		r.Op = p.relationOp()
		r.Value = p.term()
	case op == "K_IS":
		panic(&Unsupported{What: "IS NOT NULL"})
	case op == "K_IN":
		p.inValues(&r)
	case op == "K_CONTAINS":
		panic(&Unsupported{What: "CONTAINS"})
	case op == tLBracket:
		panic(&Unsupported{What: "elements of collections in WHERE"})
	default:
		panic(p.noViableAt(at))
	}
	return r
}

// tupleAhead distinguishes (a, b) > … from a relation in parentheses.
func (p *parser) tupleAhead() bool {
	i := p.pos + 1
	for identStart[p.toks[i].kind] && p.toks[i+1].kind == tComma {
		i += 2
	}
	return identStart[p.toks[i].kind] && p.toks[i+1].kind == tRParen
}

// tupleRelation: (a, b) > (1, 2).
func (p *parser) tupleRelation() Relation {
	r := Relation{Multi: true, Columns: p.parenIdents()}
	if k := p.kind(); k == tEqual || k == "K_IN" {
		panic(&Unsupported{What: "= and IN of several columns"})
	}
	if !relationOps[p.kind()] {
		panic(p.noViable())
	}
	at := p.pos
	r.Op = p.relationOp()
	switch {
	case p.accept("K_SCYLLA_CLUSTERING_BOUND"):
		panic(&Unsupported{What: "SCYLLA_CLUSTERING_BOUND"})
	case p.markerAhead():
		panic(&Unsupported{What: "a bind marker for several columns"})
	case p.kind() != tLParen:
		panic(p.noViableAt(at))
	}
	r.Value = p.value()
	return r
}

// inValues: IN (1, 2), IN ? or IN :name.
func (p *parser) inValues(r *Relation) {
	p.next()
	r.Op = OpIn
	if p.markerAhead() {
		r.Value = p.marker()
		return
	}
	if p.kind() != tLParen {
		panic(p.noViable())
	}
	p.next()
	r.In = []Term{}
	if p.accept(tRParen) {
		return
	}
	r.In = p.termsUntil(tRParen)
}

var relationKinds = map[kind]Op{
	tEqual: OpEQ, tNotEq: OpNE, tLess: OpLT, tLessEq: OpLE, tGreater: OpGT, tGreaterEq: OpGE,
}

func (p *parser) relationOp() Op {
	op, ok := relationKinds[p.kind()]
	if p.kind() == "K_LIKE" {
		panic(&Unsupported{What: "LIKE"})
	}
	if !ok {
		panic(p.noViable())
	}
	p.next()
	return op
}

// condition reads an optional IF clause of UPDATE and DELETE.
func (p *parser) condition() *Cond {
	if !p.accept("K_IF") {
		return nil
	}
	if p.kind() == "K_EXISTS" && !p.conditionAt(1) {
		p.next()
		return &Cond{Exists: true}
	}
	c := &Cond{Columns: []Relation{p.columnCondition()}}
	for p.accept("K_AND") {
		c.Columns = append(c.Columns, p.columnCondition())
	}
	return c
}

// conditionAt distinguishes a column named exists from the keyword by the next token.
func (p *parser) conditionAt(n int) bool {
	k := p.peek(n)
	return relationOps[k] || k == "K_IN" || k == tLBracket
}

// columnCondition: one condition of an IF clause.
func (p *parser) columnCondition() Relation {
	r := Relation{Columns: []string{p.ident()}}
	switch p.kind() {
	case tLBracket:
		panic(&Unsupported{What: "elements of collections in IF"})
	case "K_IN":
		p.inValues(&r)
		return r
	}
	r.Op = p.relationOp()
	r.Value = p.term()
	return r
}
