package cql

func (p *parser) create() Statement {
	switch p.peek(1) {
	case "K_KEYSPACE":
		p.pos += 2
		return p.createKeyspace()
	case "K_COLUMNFAMILY":
		p.pos += 2
		return p.createTable()
	}
	panic(p.noViable())
}

func (p *parser) createKeyspace() *CreateKeyspace {
	s := &CreateKeyspace{IfNotExists: p.ifNotExists()}
	s.Keyspace = p.objectName("keyspace")
	p.expect("K_WITH", identStart)
	s.With = p.properties()
	return s
}

func (p *parser) createTable() *CreateTable {
	s := &CreateTable{IfNotExists: p.ifNotExists(), Table: p.tableName()}
	p.expect(tLParen, identStart.union(newKindSet("K_PRIMARY")))
	p.tableElement(s)
	for p.accept(tComma) {
		if identStart[p.kind()] || p.kind() == "K_PRIMARY" {
			p.tableElement(s)
		}
	}
	p.expect(tRParen, newKindSet("K_WITH", tSemicolon))
	s.With, s.ClusterOrder, s.CompactStorage = p.tableProperties()
	return s
}

// tableElement: a column, or PRIMARY KEY (…).
func (p *parser) tableElement(s *CreateTable) {
	if p.accept("K_PRIMARY") {
		p.expect("K_KEY", newKindSet(tLParen))
		s.PartitionKey, s.Clustering = p.primaryKey()
		return
	}
	c := ColumnDef{Name: p.ident(), Type: p.dataType()}
	c.Static = p.accept("K_STATIC")
	if p.accept("K_PRIMARY") {
		p.expect("K_KEY", newKindSet(tComma, tRParen))
		c.PrimaryKey = true
	}
	s.Columns = append(s.Columns, c)
}

// primaryKey reads (a, b) or ((a, b), c).
func (p *parser) primaryKey() (partition, clustering []string) {
	p.expect(tLParen, identStart)
	if p.kind() == tLParen {
		partition = p.parenIdents()
	} else {
		partition = []string{p.ident()}
	}
	for p.accept(tComma) {
		clustering = append(clustering, p.ident())
	}
	p.expect(tRParen, newKindSet("K_WITH", tComma, tRParen, tSemicolon))
	return partition, clustering
}

func (p *parser) alter() Statement {
	if !p.acceptAll("K_ALTER", "K_COLUMNFAMILY") {
		panic(p.noViable())
	}
	return p.alterTable()
}

func (p *parser) alterTable() *AlterTable {
	s := &AlterTable{Table: p.tableName()}
	switch k := p.kind(); k {
	case "K_ALTER":
		panic(&Unsupported{What: "a change of a column's type"})
	case "K_ADD":
		p.next()
		p.parenOrOne(func() {
			c := ColumnDef{Name: p.ident(), Type: p.dataType()}
			c.Static = p.accept("K_STATIC")
			s.Add = append(s.Add, c)
		})
	case "K_DROP":
		p.next()
		p.parenOrOne(func() { s.Drop = append(s.Drop, p.ident()) })
	case "K_WITH":
		p.next()
		s.With = p.properties()
	case "K_RENAME":
		panic(&Unsupported{What: "RENAME"})
	default:
		panic(p.noViable())
	}
	return s
}

// parenOrOne reads one item, or several in parentheses.
func (p *parser) parenOrOne(item func()) {
	if !p.accept(tLParen) {
		item()
		return
	}
	p.list(item)
	p.expect(tRParen, newKindSet(tSemicolon))
}

func (p *parser) drop() Statement {
	what := p.peek(1)
	p.pos += 2
	switch what {
	case "K_KEYSPACE":
		return &DropKeyspace{IfExists: p.ifExists(), Keyspace: p.objectName("keyspace")}
	case "K_COLUMNFAMILY":
		return &DropTable{IfExists: p.ifExists(), Table: p.tableName()}
	}
	p.pos -= 2
	panic(p.noViable())
}
