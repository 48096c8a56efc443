package cql

func (p *parser) create() Statement {
	switch p.peek(1) {
	case kKeyspace:
		p.pos += 2
		return p.createKeyspace()
	case kColumnfamily:
		p.pos += 2
		return p.createTable()
	case kCustom, kIndex:
		return p.createIndex()
	case kType:
		p.pos += 2
		return p.createType()
	case kMaterialized:
		p.pos += 2
		return p.createView()
	}
	if stmt := p.unsupported(); stmt != nil {
		return stmt
	}
	panic(p.noViable())
}

func (p *parser) createKeyspace() *CreateKeyspace {
	s := &CreateKeyspace{IfNotExists: p.ifNotExists()}
	s.Keyspace = p.objectName("keyspace")
	p.expect(kWith, identStart)
	s.With = p.properties()
	return s
}

func (p *parser) createTable() *CreateTable {
	s := &CreateTable{IfNotExists: p.ifNotExists(), Table: p.tableName()}
	p.expect(tLParen, identStart.union(setOf(kPrimary)))
	p.tableElement(s)
	for p.accept(tComma) {
		if identStart.has(p.kind()) || p.kind() == kPrimary {
			p.tableElement(s)
		}
	}
	p.expect(tRParen, setOf(kWith, tSemicolon))
	s.With, s.ClusterOrder, s.CompactStorage = p.tableProperties()
	return s
}

// tableElement: a column, or PRIMARY KEY (…).
func (p *parser) tableElement(s *CreateTable) {
	if p.accept(kPrimary) {
		p.expect(kKey, setOf(tLParen))
		s.PrimaryKeys++
		s.PartitionKey, s.Clustering = p.primaryKey()
		return
	}
	c := ColumnDef{Name: p.ident(), Type: p.dataType()}
	c.Static = p.accept(kStatic)
	if p.accept(kPrimary) {
		p.expect(kKey, setOf(tComma, tRParen))
		c.PrimaryKey = true
		s.PrimaryKeys++
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
	p.expect(tRParen, setOf(kWith, tComma, tRParen, tSemicolon))
	return partition, clustering
}

func (p *parser) createType() *CreateType {
	s := &CreateType{IfNotExists: p.ifNotExists(), Type: p.userTypeName()}
	field := func() {
		s.Fields = append(s.Fields, ColumnDef{Name: p.ident(), Type: p.dataType()})
	}
	p.expect(tLParen, identStart)
	field()
	for p.accept(tComma) {
		if identStart.has(p.kind()) {
			field()
		}
	}
	p.expect(tRParen, setOf(tSemicolon))
	return s
}

func (p *parser) createIndex() *CreateIndex {
	p.next()
	s := &CreateIndex{IsCustom: p.accept(kCustom)}
	p.expect(kIndex, identStart.union(setOf(kIf, kOn)))
	s.IfNotExists = p.ifNotExists()
	if p.kind() != kOn {
		if !nameStart.has(p.kind()) {
			panic(p.mismatch(kOn, nameStart))
		}
		s.Index = p.objectName("index")
	}
	p.expect(kOn, nameStart)
	s.Table = p.tableName()
	p.expect(tLParen, identStart.union(setOf(tRParen)))
	if p.kind() != tRParen {
		p.list(func() { s.Targets = append(s.Targets, p.indexTarget()) })
	}
	p.expect(tRParen, setOf(kUsing, kWith, tSemicolon))
	s.nameTarget()
	if p.accept(kUsing) {
		if p.kind() != tString {
			panic(p.mismatch(tString, setOf(kWith)))
		}
		s.Custom = p.unquoted(p.next())
	}
	if p.accept(kWith) {
		s.With = p.properties()
	}
	return s
}

// nameTarget sets Target and Local where Targets has their form.
func (s *CreateIndex) nameTarget() {
	targets := s.Targets
	if len(targets) == 2 && targets[0].Kind == "columns" {
		s.Local = targets[0].Columns
		targets = targets[1:]
	}
	if len(targets) == 1 && targets[0].Kind != "columns" {
		s.Target, s.TargetKind = targets[0].Columns[0], targets[0].Kind
	}
}

func (p *parser) indexTarget() IndexTarget {
	k := p.kind()
	switch {
	case k == tLParen:
		return IndexTarget{Kind: "columns", Columns: p.parenIdents()}
	case k == kKeys && p.peek(1) == tLParen:
		return p.wrappedTarget("keys")
	case k == kEntries:
		return p.wrappedTarget("entries")
	case k == kFull:
		return p.wrappedTarget("full")
	default:
		return IndexTarget{Columns: []string{p.ident()}}
	}
}

func (p *parser) wrappedTarget(wrapper string) IndexTarget {
	p.next()
	p.expect(tLParen, identStart)
	t := IndexTarget{Kind: wrapper, Columns: []string{p.ident()}}
	p.expect(tRParen, setOf(tRParen, tComma))
	return t
}

func (p *parser) createView() *CreateView {
	p.expect(kView, nameStart.union(setOf(kIf)))
	s := &CreateView{IfNotExists: p.ifNotExists(), View: p.tableName(), Select: &Select{}}
	p.expect(kAs, setOf(kSelect))
	p.expect(kSelect, identStart.union(setOf(tStar)))
	p.selectClause(s.Select)
	p.expect(kFrom, nameStart)
	s.Select.From = p.tableName()
	if p.accept(kWhere) {
		s.Select.Where = p.where()
	}
	s.Select.Binds = Binds{Names: p.binds}
	p.expect(kPrimary, setOf(kKey))
	p.expect(kKey, setOf(tLParen))
	s.PartitionKey, s.Clustering = p.primaryKey()
	var compact bool
	s.With, s.ClusterOrder, compact = p.tableProperties()
	s.CompactStorage = compact
	return s
}

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
