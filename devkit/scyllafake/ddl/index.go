package ddl

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

func (w *change) createIndex(keyspace string, s *cql.CreateIndex) error {
	n, err := resolve(keyspace, s.Table)
	if err != nil {
		return err
	}
	t, err := w.table(n)
	if err != nil {
		return err
	}
	switch {
	case t.Kind == catalog.View:
		return cqlerr.Invalidf("Secondary indexes are not supported on materialized views")
	case t.Kind == catalog.System:
		return cqlerr.New(cqlerr.Unauthorized, "Cannot ALTER <table %s.%s>", n.Keyspace, n.Name)
	case s.Custom != "":
		return cqlerr.Unsupported("CUSTOM indexes")
	case len(s.Local) > 0:
		return cqlerr.Unsupported("local indexes")
	case s.TargetKind != "":
		return cqlerr.Unsupported("indexes on parts of collections")
	}
	if err := checkIndexed(t, s.Target); err != nil {
		return err
	}
	ks := w.keyspace(n.Keyspace)
	name := s.Index
	taken := func(name string) bool {
		for _, o := range ks.Tables {
			if slices.ContainsFunc(o.Indexes, func(ix *catalog.Index) bool { return ix.Name == name }) {
				return true
			}
		}
		return false
	}
	if name == "" {
		stem := n.Name + "_" + strings.Map(wordOnly, s.Target) + "_idx"
		name = stem
		for i := 1; taken(name); i++ {
			name = stem + "_" + strconv.Itoa(i)
		}
	} else if taken(name) {
		if s.IfNotExists {
			return errNothing
		}
		return cqlerr.Invalidf("Index already exists")
	}
	for _, ix := range t.Indexes {
		if ix.Target == s.Target {
			if s.IfNotExists {
				return errNothing
			}
			return cqlerr.Invalidf("Index %s is a duplicate of existing index %s", name, ix.Name)
		}
	}
	ix := &catalog.Index{
		Name: name, Target: s.Target, ViewName: name + "_index",
		Options: map[string]string{"target": cqltype.QuoteIdent(s.Target)},
	}
	if ks.Tables[ix.ViewName] != nil {
		return errTableExists(cql.Name{Keyspace: n.Keyspace, Name: ix.ViewName})
	}
	t = t.Clone()
	others := t.Indexes
	t.Indexes = append(slices.Clone(others), ix)
	slices.SortFunc(t.Indexes, func(a, b *catalog.Index) int { return strings.Compare(a.Name, b.Name) })
	w.createIndexView(t, ix)
	w.notify(catalog.Created, catalog.TargetTable, n.Keyspace, ix.ViewName)
	return w.replaceIndexed(t)
}

// replaceIndexed puts a table with changed indexes in the schema.
func (w *change) replaceIndexed(t *catalog.Table) error {
	w.keyspace(t.Keyspace).Tables[t.Name] = t
	w.putTable(t)
	w.notify(catalog.Updated, catalog.TargetTable, t.Keyspace, t.Name)
	w.answer(catalog.Updated, catalog.TargetTable, t.Keyspace, t.Name)
	if t.CDC != nil && t.CDC.Enabled {
		return w.syncLog(t)
	}
	return nil
}

func wordOnly(r rune) rune {
	if r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
		return r
	}
	return -1
}

func checkIndexed(t *catalog.Table, column string) error {
	c := t.ByName[column]
	switch {
	case c == nil:
		return cqlerr.Invalidf("No column definition found for column %s", column)
	case c.Type.Kind == cqltype.Duration:
		return cqlerr.Invalidf("Secondary indexes are not supported on duration columns")
	case c.Kind == catalog.PartitionKey && len(t.PartitionKey) == 1:
		return cqlerr.Invalidf("Cannot create secondary index on partition key column %s", column)
	case c.Kind == catalog.Static:
		return cqlerr.Invalidf("Indexing static columns is not implemented yet.")
	case c.Type.IsMultiCell():
		return cqlerr.Invalidf("Cannot create secondary index on non-frozen collection or UDT column %s", column)
	case c.Type.Frozen && c.Type.IsCollection():
		return cqlerr.Unsupported("indexes on frozen collections")
	}
	return nil
}

// createIndexView builds the view of an index. Only system_schema contains it: reads by
// the index filter the base table.
func (w *change) createIndexView(t *catalog.Table, ix *catalog.Index) {
	ks := w.keyspace(t.Keyspace)
	v := catalog.NewTable(t.Keyspace, ix.ViewName)
	v.Kind = catalog.View
	v.View = &catalog.ViewOf{
		BaseID: t.ID, BaseName: t.Name,
		WhereClause: cqltype.QuoteIdent(ix.Target) + " IS NOT NULL",
	}
	v.ID, v.StoreID = w.newID(), w.newStoreID()
	v.Add(catalog.Column{Name: ix.Target, Type: t.ByName[ix.Target].Type, Kind: catalog.PartitionKey})
	v.Add(catalog.Column{Name: tokenColumn(t), Type: cqltype.TBigInt, Kind: catalog.Clustering})
	for _, c := range slices.Concat(t.PartitionKey, t.Clustering) {
		if c.Name != ix.Target {
			v.Add(catalog.Column{Name: c.Name, Type: c.Type, Kind: catalog.Clustering})
		}
	}
	ks.Tables[v.Name] = v
	w.putTable(v)
}

// tokenColumn returns a free name for the token in an index's view.
func tokenColumn(t *catalog.Table) string {
	name := "idx_token"
	for i := 1; t.ByName[name] != nil; i++ {
		name = "idx_token_" + strconv.Itoa(i)
	}
	return name
}

func (w *change) dropIndex(keyspace string, s *cql.DropIndex) error {
	n, err := resolve(keyspace, s.Index)
	if err != nil {
		return err
	}
	ks := w.next.Keyspaces[n.Keyspace]
	if ks == nil {
		return cqlerr.Invalidf("Keyspace %s does not exist", n.Keyspace)
	}
	for _, name := range slices.Sorted(maps.Keys(ks.Tables)) {
		t := ks.Tables[name]
		i := slices.IndexFunc(t.Indexes, func(ix *catalog.Index) bool { return ix.Name == n.Name })
		if i < 0 {
			continue
		}
		ix := t.Indexes[i]
		t = t.Clone()
		t.Indexes = slices.Delete(slices.Clone(t.Indexes), i, i+1)
		w.dropIndexView(t, ix)
		return w.replaceIndexed(t)
	}
	if s.IfExists {
		return errNothing
	}
	return cqlerr.Invalidf("Index '%s' could not be found in any of the tables of keyspace '%s'", n.Name, n.Keyspace)
}

func (w *change) dropIndexView(t *catalog.Table, ix *catalog.Index) {
	ks := w.keyspace(t.Keyspace)
	w.notify(catalog.Dropped, catalog.TargetTable, t.Keyspace, ix.ViewName)
	if v := ks.Tables[ix.ViewName]; v != nil {
		w.forget(v)
		delete(ks.Tables, ix.ViewName)
	}
}

// dropIndexViews drops the views of all indexes of a dropped table.
func (w *change) dropIndexViews(t *catalog.Table) {
	for _, ix := range t.Indexes {
		w.dropIndexView(t, ix)
	}
}
