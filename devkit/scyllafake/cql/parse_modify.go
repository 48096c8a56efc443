package cql

func (p *parser) insert() *Insert {
	p.next()
	p.expect("K_INTO", nameStart)
	s := &Insert{Table: p.tableName()}
	switch p.kind() {
	case tLParen:
		s.Columns = p.parenIdents()
		p.expect("K_VALUES", newKindSet(tLParen))
		p.expect(tLParen, termStart)
		s.Values = p.termsUntil(tRParen)
	case "K_JSON":
		panic(&Unsupported{What: "JSON"})
	default:
		panic(p.noViable())
	}
	if p.ifNotExists() {
		s.If = &Cond{NotExists: true}
	}
	s.Using = p.using()
	return s
}

// using reads an optional USING clause; of a repeated attribute the last counts.
func (p *parser) using() Using {
	var u Using
	if !p.accept("K_USING") {
		return u
	}
	for {
		switch p.kind() {
		case "K_TIMESTAMP":
			p.next()
			u.Timestamp = p.intValue()
		case "K_TTL":
			p.next()
			u.TTL = p.intValue()
		case "K_TIMEOUT":
			p.next()
			u.Timeout = p.term()
		default:
			panic(p.noViable())
		}
		if !p.accept("K_AND") {
			return u
		}
	}
}

func (p *parser) update() *Update {
	p.next()
	s := &Update{Table: p.tableName()}
	s.Using = p.using()
	p.expect("K_SET", identStart)
	p.list(func() { s.Set = append(s.Set, p.assignment()) })
	p.expect("K_WHERE", identStart.union(newKindSet(tLParen, "K_TOKEN")))
	s.Where = p.where()
	s.If = p.condition()
	return s
}

// assignment: one element of a SET clause.
func (p *parser) assignment() Assignment {
	a := Assignment{Column: p.ident()}
	switch p.kind() {
	case tEqual:
		p.next()
		p.assignColumn(&a)
		return a
	case tLBracket:
		p.next()
		a.Kind = AssignElem
		if p.accept("K_SCYLLA_TIMEUUID_LIST_INDEX") {
			panic(&Unsupported{What: "SCYLLA_TIMEUUID_LIST_INDEX"})
		}
		a.Elem = p.term()
		p.expect(tRBracket, newKindSet(tEqual))
	case tDot:
		panic(&Unsupported{What: userTypes})
	default:
		panic(p.noViable())
	}
	p.expect(tEqual, termStart)
	a.Value = p.term()
	return a
}

// assignColumn reads the part after "c =": a value, c + x or c - x.
func (p *parser) assignColumn(a *Assignment) {
	if p.accept("K_SCYLLA_COUNTER_SHARD_LIST") {
		panic(&Unsupported{What: "SCYLLA_COUNTER_SHARD_LIST"})
	}
	if identStart[p.kind()] {
		switch p.peek(1) {
		case tPlus, tMinus:
			p.assignOperation(a)
			return
		case tInteger:
			panic(&Unsupported{What: "counters"}) // "c -3", where the sign belongs to the number
		case tLParen, tDot:
		default:
			panic(p.noViable())
		}
	}
	a.Value = p.term()
	if p.accept(tPlus) {
		panic(&Unsupported{What: "elements before the first one of a list"})
	}
}

// assignOperation: c + term or c - term.
func (p *parser) assignOperation(a *Assignment) {
	column := p.ident()
	sign := p.next()
	a.Kind = AssignAppend
	if sign.kind == tMinus {
		a.Kind = AssignRemove
	}
	a.Value = p.term()
	if column != a.Column {
		panic(p.refuse("Only expressions of the form X = X " + p.text(sign) + "<value> are supported."))
	}
}

func (p *parser) delete() *Delete {
	p.next()
	s := &Delete{}
	if p.kind() != "K_FROM" {
		if !identStart[p.kind()] {
			panic(p.mismatch("K_FROM", nameStart))
		}
		p.list(func() { s.Targets = append(s.Targets, p.deleteTarget()) })
	}
	p.expect("K_FROM", nameStart)
	s.Table = p.tableName()
	s.Using = p.using()
	p.expect("K_WHERE", identStart.union(newKindSet(tLParen, "K_TOKEN")))
	s.Where = p.where()
	s.If = p.condition()
	return s
}

// deleteTarget: c or c[x].
func (p *parser) deleteTarget() DeleteTarget {
	at := p.pos
	t := DeleteTarget{Column: p.ident()}
	switch p.kind() {
	case tLBracket:
		p.next()
		t.Elem = p.term()
		p.expect(tRBracket, nil)
	case tDot:
		panic(&Unsupported{What: userTypes})
	case tComma, "K_FROM":
	default:
		panic(p.noViableAt(at))
	}
	return t
}

func (p *parser) batch() *Batch {
	p.next()
	b := &Batch{}
	switch {
	case p.accept("K_UNLOGGED"):
		b.Kind = BatchUnlogged
	case p.accept("K_COUNTER"):
		b.Kind = BatchCounter
	}
	p.expect("K_BATCH", newKindSet("K_USING", "K_INSERT", "K_UPDATE", "K_DELETE", "K_APPLY"))
	b.Using = p.using()
	for {
		switch p.kind() {
		case "K_INSERT":
			b.Statements = append(b.Statements, p.insert())
		case "K_UPDATE":
			b.Statements = append(b.Statements, p.update())
		case "K_DELETE":
			b.Statements = append(b.Statements, p.delete())
		default:
			p.expect("K_APPLY", newKindSet("K_BATCH"))
			p.expect("K_BATCH", newKindSet(tSemicolon))
			return b
		}
		p.accept(tSemicolon)
	}
}
