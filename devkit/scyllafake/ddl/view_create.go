package ddl

import (
	"slices"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

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
	if err := setOptions(v, s.With); err != nil {
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
