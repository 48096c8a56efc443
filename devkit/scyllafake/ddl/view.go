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
	if err := w.setOptions(v, s.With); err != nil {
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

// createView defines a materialized view. The view has a schema and no rows:
// package engine refuses to read it.
func (w *change) createView(keyspace string, s *cql.CreateView) error {
	if len(s.Select.Binds.Names) > 0 {
		return cqlerr.Invalidf("Cannot use query parameters in CREATE MATERIALIZED VIEW statements")
	}
	n, err := resolve(keyspace, s.View)
	if err != nil {
		return err
	}
	v, base, err := w.defineView(n, s)
	if err != nil {
		return err
	}
	ks := w.keyspace(n.Keyspace)
	if ks.Tables[n.Name] != nil {
		if s.IfNotExists {
			return errNothing
		}
		return errTableExists(n)
	}
	v.ID, v.StoreID = w.newID(), w.newStoreID()
	ks.Tables[v.Name] = v
	w.putTable(v)
	w.notify(catalog.Created, catalog.TargetTable, n.Keyspace, n.Name)
	w.touch(base)
	w.answer(catalog.Created, catalog.TargetTable, n.Keyspace, n.Name)
	return nil
}

// defineView builds the view of a CREATE MATERIALIZED VIEW. The order of the
// checks is ScyllaDB's (create_view_statement.cc).
func (w *change) defineView(n cql.Name, s *cql.CreateView) (v, base *catalog.Table, err error) {
	from := cql.Name{Keyspace: n.Keyspace, Name: s.Select.From.Name}
	if ks := w.next.Keyspaces[n.Keyspace]; ks != nil {
		if t := ks.Tables[from.Name]; t != nil && t.Kind == catalog.System {
			return nil, nil, cqlerr.New(cqlerr.Unauthorized, "Cannot ALTER <table %s.%s>", t.Keyspace, t.Name)
		}
	}
	v = catalog.NewTable(n.Keyspace, n.Name)
	v.Kind = catalog.View
	if err := w.setOptions(v, s.With); err != nil {
		return nil, nil, err
	}
	switch other := s.Select.From.Keyspace; {
	case s.CompactStorage:
		return nil, nil, cqlerr.Invalidf("Cannot use 'COMPACT STORAGE' when defining a materialized view")
	case v.CDC != nil:
		return nil, nil, cqlerr.Invalidf("Cannot enable CDC for a materialized view")
	case other != "" && other != n.Keyspace:
		return nil, nil, cqlerr.Invalidf("Cannot create a materialized view on a table in a separate keyspace ('%s' != '%s')", other, n.Keyspace)
	case !validName.MatchString(n.Name):
		return nil, nil, cqlerr.Invalidf("\"%s\" is not a valid materialized view name (must contain alphanumeric character only: [0-9A-Za-z] or the underscore)", n.Name)
	case len(n.Name) > maxNameLength:
		return nil, nil, cqlerr.Invalidf("materialized view names shouldn't be more than %d characters long (got \"%s\")", maxNameLength, n.Name)
	}
	if base, err = w.table(from); err != nil {
		return nil, nil, err
	}
	if err := w.checkViewBase(base, n); err != nil {
		return nil, nil, err
	}
	selected, err := viewSelection(base, s.Select)
	if err != nil {
		return nil, nil, err
	}
	where, err := viewWhere(base, s.Select.Where)
	if err != nil {
		return nil, nil, err
	}
	v.View = &catalog.ViewOf{
		BaseID: base.ID, BaseName: base.Name, IncludeAllColumns: s.Select.Star, WhereClause: whereText(where),
	}
	if err := addViewColumns(v, base, s, selected, where); err != nil {
		return nil, nil, err
	}
	if v.Options.DefaultTTL > 0 {
		return nil, nil, errViewTTL
	}
	return v, base, nil
}

var errViewTTL = cqlerr.Invalidf("Cannot set or alter default_time_to_live for a materialized view. " +
	"Data in a materialized view always expire at the same time than the corresponding data in the parent table.")

// checkViewBase refuses the tables that cannot have the view n.
func (w *change) checkViewBase(base *catalog.Table, n cql.Name) error {
	ks := w.next.Keyspaces[base.Keyspace]
	// Any table with a log's name counts as a log here, whether CDC is on or off.
	of, isLog := strings.CutSuffix(base.Name, catalog.LogName(""))
	switch {
	case ks.Tablets:
		return cqlerr.Unsupported("materialized views in a keyspace with tablets")
	case base.Kind == catalog.View:
		return cqlerr.Invalidf("Materialized views cannot be created against other materialized views")
	case isLog && ks.Tables[of] != nil:
		return cqlerr.Invalidf("Materialized views cannot be created on CDC Log tables")
	case base.Options.GCGraceSeconds == 0:
		return cqlerr.Invalidf("Cannot create materialized view '%s' for base table '%s' with gc_grace_seconds of 0, "+
			"since this value is used to TTL undelivered updates. Setting gc_grace_seconds too low might cause "+
			"undelivered updates to expire before being replayed.", n.Name, base.Name)
	}
	return nil
}

// viewSelection parses the select clause: columns of the base only.
func viewSelection(base *catalog.Table, s *cql.Select) (map[string]bool, error) {
	selected := map[string]bool{}
	for _, sel := range s.Selectors {
		if sel.Alias != "" {
			return nil, cqlerr.Invalidf("Cannot use alias when defining a materialized view")
		}
		ref, ok := sel.Expr.(cql.ColumnRef)
		if !ok {
			return nil, cqlerr.Invalidf("Cannot use general expressions when defining a materialized view")
		}
		if base.ByName[ref.Column] == nil {
			return nil, errViewColumn(ref.Column)
		}
		selected[ref.Column] = true
	}
	return selected, nil
}

func errViewColumn(name string) error {
	return cqlerr.Invalidf("Unknown column name detected in CREATE MATERIALIZED VIEW statement: %s", name)
}

// viewWhere parses the where clause, in which every condition is IS NOT NULL. Real
// nodes allow others on key columns; they would restrict the rows of the view.
func viewWhere(base *catalog.Table, where []cql.Relation) (notNull []string, err error) {
	for _, r := range where {
		if r.Op != cql.OpIsNotNull {
			return nil, cqlerr.Unsupported("materialized views with conditions other than IS NOT NULL")
		}
		name := r.Columns[0]
		if base.ByName[name] == nil {
			return nil, cqlerr.Invalidf("Undefined name %s in where clause ('unresolved(%s)')", name, name)
		}
		notNull = append(notNull, name)
	}
	return notNull, nil
}

// whereText returns a where clause as system_schema.views shows it.
func whereText(notNull []string) string {
	var b strings.Builder
	for i, name := range notNull {
		if i > 0 {
			b.WriteString(" AND ")
		}
		b.WriteString(cqltype.QuoteIdent(name))
		b.WriteString(" IS NOT null")
	}
	return b.String()
}

// addViewColumns adds the key and the other selected columns to a view.
func addViewColumns(v, base *catalog.Table, s *cql.CreateView, selected map[string]bool, notNull []string) error {
	more := false // the key has a column outside the base's key
	for i, key := range [][]string{s.PartitionKey, s.Clustering} {
		for _, name := range key {
			c := base.ByName[name]
			if err := checkViewKey(v, base, c, name, more, notNull); err != nil {
				return err
			}
			more = more || !isKey(c)
			col := catalog.Column{Name: name, Type: c.Type, Kind: catalog.PartitionKey}
			if i == 1 {
				col.Kind = catalog.Clustering
				j := slices.IndexFunc(s.ClusterOrder, func(o cql.Order) bool { return o.Column == name })
				col.Desc = j >= 0 && s.ClusterOrder[j].Desc
			}
			v.Add(col)
		}
	}
	var missing []string
	for _, c := range base.Columns() {
		included := s.Select.Star || selected[c.Name]
		switch inKey := v.ByName[c.Name] != nil; {
		case included && c.Kind == catalog.Static:
			return cqlerr.Invalidf("Unable to include static column '%s' which would be included by Materialized View SELECT * statement", c.Name)
		case inKey:
		case isKey(c):
			missing = append(missing, c.Name)
		case included:
			v.Add(catalog.Column{Name: c.Name, Type: c.Type, Kind: catalog.Regular})
		}
	}
	if len(missing) > 0 {
		return cqlerr.Invalidf("Cannot create Materialized View %s without primary key columns from base %s (%s)",
			v.Name, base.Name, strings.Join(missing, ", "))
	}
	for _, o := range s.ClusterOrder {
		if !slices.Contains(s.Clustering, o.Column) {
			return cqlerr.Invalidf("CLUSTERING ORDER BY lists %s which is not a clustering column in the view", o.Column)
		}
	}
	return nil
}

// checkViewKey checks the base column c, of that name, as the next one of a view's key.
func checkViewKey(v, base *catalog.Table, c *catalog.Column, name string, more bool, notNull []string) error {
	switch {
	case c == nil:
		return errViewColumn(name)
	case v.ByName[name] != nil:
		return cqlerr.Invalidf("Duplicate entry found in PRIMARY KEY: %s", name)
	case c.Type.IsMultiCell():
		return cqlerr.Invalidf("Cannot use MultiCell column '%s' in PRIMARY KEY of materialized view", name)
	case hasDuration(c.Type):
		return cqlerr.Invalidf("Cannot use Duration column '%s' in PRIMARY KEY of materialized view", name)
	case c.Kind == catalog.Static:
		return cqlerr.Invalidf("Cannot use Static column '%s' in PRIMARY KEY of materialized view", name)
	case more && !isKey(c):
		return cqlerr.Invalidf("Cannot include more than one non-primary key column '%s' in materialized view primary key", name)
	}
	// A partition key of one column is never null.
	alone := c.Kind == catalog.PartitionKey && len(base.PartitionKey) == 1
	if !alone && !slices.Contains(notNull, name) {
		return cqlerr.Invalidf("Primary key column '%s' is required to be filtered by 'IS NOT NULL'", name)
	}
	return nil
}

func isKey(c *catalog.Column) bool {
	return c.Kind == catalog.PartitionKey || c.Kind == catalog.Clustering
}

func hasDuration(t *cqltype.Type) bool {
	return t != nil && (t.Kind == cqltype.Duration || hasDuration(t.Key) || hasDuration(t.Elem) ||
		slices.ContainsFunc(t.Fields, func(f cqltype.Field) bool { return hasDuration(f.Type) }))
}
