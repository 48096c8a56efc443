package ddl

import (
	"fmt"
	"slices"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

func (w *change) alterTable(keyspace string, s *cql.AlterTable) error {
	old, err := w.table(keyspace, s.Table)
	if err != nil {
		return err
	}
	columns := len(s.Add) > 0 || len(s.Drop) > 0
	switch {
	case old.Kind == catalog.System, old.Kind == catalog.Paxos:
		return cqlerr.New(cqlerr.Unauthorized, "Cannot ALTER <table %s.%s>", old.Keyspace, old.Name)
	case old.Kind == catalog.CDCLog && columns:
		if err := w.checkAlterLog(old, s); err != nil {
			return err
		}
	}
	t := old.Clone()
	for _, d := range s.Add {
		if err := w.addColumn(t, d); err != nil {
			return err
		}
	}
	for _, name := range s.Drop {
		if err := w.dropColumn(t, name); err != nil {
			return err
		}
	}
	if err := w.setOptions(t, s.With); err != nil {
		return err
	}
	if err := checkTablets(w.next.Keyspaces[t.Keyspace], s.With); err != nil {
		return err
	}
	if err := w.checkAlterCDC(t, s.With); err != nil {
		return err
	}
	return w.replace(t)
}

// replace puts an altered table in the schema, updates its log and adds the events, in
// ScyllaDB's order: tables created, tables altered.
func (w *change) replace(t *catalog.Table) error {
	ks := w.keyspace(t.Keyspace)
	ks.Tables[t.Name] = t
	w.putTable(t)
	logged := t.CDC != nil && t.CDC.Enabled
	newLog := logged && ks.Log(t) == nil
	if newLog {
		if err := w.syncLog(t); err != nil {
			return err
		}
	}
	w.publish(catalog.Updated, catalog.TargetTable, t.Keyspace, t.Name)
	if logged && !newLog {
		return w.syncLog(t)
	}
	return nil
}

// checkAlterLog refuses changes of a log's columns that later releases refuse, and the
// one that aborts a node of earlier ones.
func (w *change) checkAlterLog(log *catalog.Table, s *cql.AlterTable) error {
	if w.c.o.Version.AtLeast(2025, 1) {
		return cqlerr.Invalidf("You cannot modify the set of columns of a CDC log table directly. Modify the base table instead.")
	}
	if len(s.Add) == 0 {
		return cqlerr.Unsupported(fmt.Sprintf("this change of the CDC log %s.%s (it kills a ScyllaDB node)", log.Keyspace, log.Name))
	}
	return nil
}

// checkAlterCDC checks a new cdc map of an existing table.
func (w *change) checkAlterCDC(t *catalog.Table, with []cql.Property) error {
	for _, prop := range with {
		if prop.Name != "cdc" {
			continue
		}
		_, named, err := readCDC(prop)
		if err != nil {
			return err
		}
		if !named {
			return cqlerr.Invalidf("Altering CDC options requires specyfing \"enabled\" flag")
		}
		if t.CDC.Enabled {
			return w.checkLog(w.next.Keyspaces[t.Keyspace], t)
		}
	}
	return nil
}

func (w *change) addColumn(t *catalog.Table, d cql.ColumnDef) error {
	if t.ByName[d.Name] != nil {
		return cqlerr.Invalidf("Invalid column name %s because it conflicts with an existing column", d.Name)
	}
	typ, err := cqltype.Parse(d.Type)
	if err != nil {
		return err
	}
	kind := catalog.Regular
	if d.Static {
		if len(t.Clustering) == 0 {
			return cqlerr.Invalidf("Static columns are only useful (and thus allowed) if the table has at least one clustering column")
		}
		kind = catalog.Static
	}
	for _, was := range t.Dropped {
		if was.Name != d.Name {
			continue
		}
		if typ.IsCollection() && typ.IsMultiCell() && was.Type.IsCollection() && was.Type.IsMultiCell() && !was.Type.Equal(typ) {
			return cqlerr.Invalidf("Cannot add a collection with the name %s because a collection with the same name and a different type has already been used in the past", d.Name)
		}
		if w.c.o.Version.AtLeast(2025, 1) && t.CDC != nil && t.CDC.Enabled && w.at-was.DroppedTime < 5_000_000 {
			return cqlerr.Invalidf("Cannot add column %s because a column with the same name was dropped too recently. Please retry after 5 seconds", d.Name)
		}
	}
	t.Add(catalog.Column{Name: d.Name, Type: typ, Kind: kind})
	return nil
}

func (w *change) dropColumn(t *catalog.Table, name string) error {
	c := t.ByName[name]
	switch {
	case c == nil:
		return cqlerr.Invalidf("Column %s was not found in table %s", name, t.Name)
	case c.Kind == catalog.PartitionKey || c.Kind == catalog.Clustering:
		return cqlerr.Invalidf("Cannot drop PRIMARY KEY part %s", name)
	}
	t.Remove(name)
	t.Dropped = slices.DeleteFunc(t.Dropped, func(d catalog.DroppedColumn) bool { return d.Name == name })
	t.Dropped = append(t.Dropped, catalog.DroppedColumn{Name: name, Type: c.Type, Kind: c.Kind, DroppedTime: w.at})
	return nil
}
