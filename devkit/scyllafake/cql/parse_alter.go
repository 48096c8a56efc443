package cql

func (p *parser) alter() Statement {
	switch p.peek(1) {
	case kKeyspace:
		p.pos += 2
		s := &AlterKeyspace{Keyspace: p.objectName("keyspace")}
		p.expect(kWith, identStart)
		s.With = p.properties()
		return s
	case kColumnfamily:
		p.pos += 2
		return p.alterTable()
	case kType:
		p.pos += 2
		return p.alterType()
	case kMaterialized:
		p.pos += 2
		p.expect(kView, nameStart)
		s := &AlterView{View: p.tableName()}
		p.expect(kWith, identStart)
		s.With = p.properties()
		return s
	}
	if stmt := p.unsupported(); stmt != nil {
		return stmt
	}
	panic(p.noViable())
}

func (p *parser) alterTable() *AlterTable {
	s := &AlterTable{Table: p.tableName()}
	switch k := p.kind(); k {
	case kAlter:
		s.AlterType = p.alterColumn()
	case kAdd:
		p.next()
		p.parenOrOne(func() {
			c := ColumnDef{Name: p.ident(), Type: p.dataType()}
			c.Static = p.accept(kStatic)
			s.Add = append(s.Add, c)
		})
	case kDrop:
		p.next()
		p.parenOrOne(func() { s.Drop = append(s.Drop, p.ident()) })
	case kWith:
		p.next()
		s.With = p.properties()
	case kRename:
		s.Rename = p.renames()
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
	p.expect(tRParen, setOf(tSemicolon))
}

// alterColumn: ALTER c TYPE t.
func (p *parser) alterColumn() *ColumnDef {
	p.next()
	c := &ColumnDef{Name: p.ident()}
	p.expect(kType, identStart)
	c.Type = p.dataType()
	return c
}

// renames: RENAME a TO b AND c TO d.
func (p *parser) renames() [][2]string {
	p.next()
	var pairs [][2]string
	for {
		from := p.ident()
		p.expect(kTo, identStart)
		pairs = append(pairs, [2]string{from, p.ident()})
		if !p.accept(kAnd) {
			return pairs
		}
	}
}

func (p *parser) alterType() *AlterType {
	s := &AlterType{Type: p.userTypeName()}
	switch p.kind() {
	case kAlter:
		s.AlterField = p.alterColumn()
	case kAdd:
		p.next()
		s.Add = []ColumnDef{{Name: p.ident(), Type: p.dataType()}}
	case kRename:
		s.Rename = p.renames()
	default:
		panic(p.noViable())
	}
	return s
}

func (p *parser) drop() Statement {
	what := p.peek(1)
	switch what {
	case kKeyspace, kColumnfamily, kType, kIndex, kMaterialized:
		p.pos += 2
	default:
		if stmt := p.unsupported(); stmt != nil {
			return stmt
		}
		panic(p.noViable())
	}
	if what == kMaterialized {
		p.expect(kView, nameStart.union(setOf(kIf)))
	}
	ifExists := p.ifExists()
	switch what {
	case kKeyspace:
		return &DropKeyspace{IfExists: ifExists, Keyspace: p.objectName("keyspace")}
	case kColumnfamily:
		return &DropTable{IfExists: ifExists, Table: p.tableName()}
	case kType:
		return &DropType{IfExists: ifExists, Type: p.userTypeName()}
	case kIndex:
		return &DropIndex{IfExists: ifExists, Index: p.qualified("index")}
	default:
		return &DropView{IfExists: ifExists, View: p.tableName()}
	}
}
