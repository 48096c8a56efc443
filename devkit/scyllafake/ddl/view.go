package ddl

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

func (w *change) alterView(keyspace string, s *cql.AlterView) error {
	n, err := resolve(keyspace, s.View)
	if err != nil {
		return err
	}
	old, err := w.table(n)
	if err != nil {
		return err
	}
	if old.Kind != catalog.View {
		return cqlerr.Invalidf("Cannot use ALTER MATERIALIZED VIEW on Table")
	}
	v := old.Clone()
	if err := setOptions(v, s.With); err != nil {
		return err
	}
	switch {
	case v.Options.GCGraceSeconds == 0:
		return cqlerr.Invalidf("Cannot alter gc_grace_seconds of a materialized view to 0, since this value is used to TTL " +
			"undelivered updates. Setting gc_grace_seconds too low might cause undelivered updates to expire before being replayed.")
	case v.Options.DefaultTTL > 0:
		return errViewTTL
	}
	ks := w.keyspace(n.Keyspace)
	ks.Tables[v.Name] = v
	w.putTable(v)
	w.touch(ks.Tables[v.View.BaseName])
	w.notify(catalog.Updated, catalog.TargetTable, n.Keyspace, n.Name)
	w.answer(catalog.Updated, catalog.TargetTable, n.Keyspace, n.Name)
	return nil
}

func (w *change) dropView(keyspace string, s *cql.DropView) error {
	n, err := resolve(keyspace, s.View)
	if err != nil {
		return err
	}
	ks := w.next.Keyspaces[n.Keyspace]
	if ks == nil || ks.Tables[n.Name] == nil {
		if s.IfExists {
			return errNothing
		}
		return cqlerr.New(cqlerr.Config, "Cannot drop non existing materialized view '%s' in keyspace '%s'.", n.Name, n.Keyspace)
	}
	v := ks.Tables[n.Name]
	switch {
	case v.Kind != catalog.View:
		return cqlerr.Invalidf("Cannot use DROP MATERIALIZED VIEW on Table")
	case isIndexView(ks.Tables[v.View.BaseName], v):
		return cqlerr.Invalidf("Cannot use DROP MATERIALIZED VIEW on Index")
	}
	w.notify(catalog.Dropped, catalog.TargetTable, n.Keyspace, n.Name)
	w.answer(catalog.Dropped, catalog.TargetTable, n.Keyspace, n.Name)
	w.forget(v)
	delete(w.keyspace(n.Keyspace).Tables, n.Name)
	return nil
}

// touch adds the event that a view's base changed, as a node does when the view itself
// changes, and makes it a new table, so that statements prepared for it are dropped.
func (w *change) touch(base *catalog.Table) {
	w.keyspace(base.Keyspace).Tables[base.Name] = base.Clone()
	w.notify(catalog.Updated, catalog.TargetTable, base.Keyspace, base.Name)
}

// views returns the views of a table by name, including the views of its indexes.
func (w *change) views(base *catalog.Table) []*catalog.Table {
	var out []*catalog.Table
	for _, v := range w.next.Keyspaces[base.Keyspace].Tables {
		if v.Kind == catalog.View && v.View.BaseName == base.Name {
			out = append(out, v)
		}
	}
	slices.SortFunc(out, func(a, b *catalog.Table) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func isIndexView(base, v *catalog.Table) bool {
	return slices.ContainsFunc(base.Indexes, func(ix *catalog.Index) bool { return ix.ViewName == v.Name })
}

// checkDropBase refuses to drop a table that has views.
func (w *change) checkDropBase(base *catalog.Table) error {
	var names []string
	for _, v := range w.views(base) {
		if !isIndexView(base, v) {
			names = append(names, v.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return cqlerr.Invalidf("Cannot drop table when materialized views still depend on it (%s.{%s})", base.Keyspace, strings.Join(names, ", "))
}

// virtualColumns returns the columns of the base whose liveness, without their values,
// a view keeps. A view needs them unless its key has a regular column of the base,
// which then determines which rows are alive.
func virtualColumns(v, base *catalog.Table) []*catalog.Column {
	for _, c := range slices.Concat(v.PartitionKey, v.Clustering) {
		if of := base.ByName[c.Name]; of != nil && !isKey(of) {
			return nil
		}
	}
	var out []*catalog.Column
	for _, c := range base.Regulars {
		if v.ByName[c.Name] == nil {
			out = append(out, c)
		}
	}
	return out
}

// virtualType returns the type of a virtual column, as system_schema spells it
// (ScyllaDB db/view/view.cc create_virtual_column).
func virtualType(t *cqltype.Type) string {
	switch {
	case !t.IsMultiCell():
		return "empty"
	case t.Kind == cqltype.List:
		return "list<empty>"
	case t.Kind == cqltype.Map:
		return "map<" + t.Key.String() + ", empty>"
	}
	return t.String()
}

// checkDropColumn refuses to drop a column that a view needs.
func (w *change) checkDropColumn(base *catalog.Table, c *catalog.Column) error {
	for _, v := range w.views(base) {
		if v.ByName[c.Name] != nil || slices.Contains(virtualColumns(v, base), c) {
			return cqlerr.Invalidf("Cannot drop column %s from base table %s.%s: materialized view %s needs this column",
				c.Name, base.Keyspace, base.Name, v.Name)
		}
	}
	return nil
}

// checkAlterGrace refuses a gc_grace_seconds of 0, which would leave no time for
// updates on their way to a view.
func (w *change) checkAlterGrace(base *catalog.Table, with []cql.Property) error {
	named := slices.ContainsFunc(with, func(p cql.Property) bool { return p.Name == "gc_grace_seconds" })
	if !named || base.Options.GCGraceSeconds != 0 || len(w.views(base)) == 0 {
		return nil
	}
	return cqlerr.Invalidf("Cannot alter gc_grace_seconds of the base table of a materialized view to 0, since this value is used to TTL " +
		"undelivered updates. Setting gc_grace_seconds too low might cause undelivered updates to expire before being replayed.")
}

// alterViews updates the views of a table after an ALTER TABLE, and adds events for the
// views that the statement changes.
func (w *change) alterViews(base *catalog.Table, s *cql.AlterTable) error {
	for _, old := range w.views(base) {
		v := old.Clone()
		changed := false
		for _, d := range s.Add {
			if d.Static {
				continue
			}
			changed = true
			if v.View.IncludeAllColumns {
				v.Add(catalog.Column{Name: d.Name, Type: base.ByName[d.Name].Type, Kind: catalog.Regular})
			}
		}
		for _, r := range s.Rename {
			if v.ByName[r[0]] == nil {
				continue
			}
			changed = true
			if err := renameViewColumn(v, r[0], r[1]); err != nil {
				return err
			}
		}
		if d := s.AlterType; d != nil && v.ByName[d.Name] != nil {
			changed = true
			if err := w.alterColumnType(v, *d); err != nil {
				return err
			}
		}
		if !changed {
			continue
		}
		w.keyspace(v.Keyspace).Tables[v.Name] = v
		w.putTable(v)
		w.notify(catalog.Updated, catalog.TargetTable, v.Keyspace, v.Name)
	}
	return nil
}

// renameViewColumn renames a column of a view, in its definition too.
func renameViewColumn(v *catalog.Table, from, to string) error {
	if err := renameColumn(v, from, to); err != nil {
		return err
	}
	if v.View.WhereClause == "" {
		return nil
	}
	stmt, err := cql.Parse("SELECT * FROM " + cqltype.QuoteIdent(v.View.BaseName) + " WHERE " + v.View.WhereClause)
	if err != nil {
		return fmt.Errorf("where clause of view %s.%s: %w", v.Keyspace, v.Name, err)
	}
	where := stmt.(*cql.Select).Where
	if !slices.ContainsFunc(where, func(r cql.Relation) bool { return r.Columns[0] == from }) {
		return nil
	}
	var notNull []string
	for _, r := range where {
		name := r.Columns[0]
		if name == from {
			name = to
		}
		notNull = append(notNull, name)
	}
	v.View.WhereClause = whereText(notNull)
	return nil
}
