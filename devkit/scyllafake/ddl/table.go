package ddl

import (
	"fmt"
	"slices"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

func (w *change) createTable(keyspace string, s *cql.CreateTable) error {
	n, err := resolve(keyspace, s.Table)
	if err != nil {
		return err
	}
	t, err := w.define(n, s)
	if err != nil {
		return err
	}
	ks := w.keyspace(n.Keyspace)
	if ks == nil {
		return cqlerr.New(cqlerr.Config, "Cannot add table '%s' to non existing keyspace '%s'.", n.Name, n.Keyspace)
	}
	if ks.Tables[n.Name] != nil {
		if s.IfNotExists {
			return w.exists(catalog.TargetTable, n.Keyspace, n.Name)
		}
		return errTableExists(n)
	}
	if err := checkTablets(ks, s.With); err != nil {
		return err
	}
	if t.CDC != nil && t.CDC.Enabled {
		if err := w.checkLog(ks, t); err != nil {
			return err
		}
	}
	t.ID, t.StoreID = w.newID(), w.newStoreID()
	ks.Tables[t.Name] = t
	w.putTable(t)
	w.publish(catalog.Created, catalog.TargetTable, n.Keyspace, n.Name)
	if t.CDC != nil && t.CDC.Enabled {
		return w.syncLog(t)
	}
	return nil
}

func errTableExists(n cql.Name) error {
	return &cqlerr.Error{
		Code:     cqlerr.AlreadyExists,
		Message:  fmt.Sprintf("Cannot add already existing table \"%s\" to keyspace \"%s\"", n.Name, n.Keyspace),
		Keyspace: n.Keyspace, Table: n.Name,
	}
}

// define builds the table of a CREATE TABLE. The order of the checks is
// ScyllaDB's (create_table_statement.cc).
func (w *change) define(n cql.Name, s *cql.CreateTable) (*catalog.Table, error) {
	switch {
	case !validName.MatchString(n.Name):
		return nil, cqlerr.Invalidf("\"%s\" is not a valid table name (must be alphanumeric character only: [0-9A-Za-z]+)", n.Name)
	case len(n.Name) > maxNameLength:
		return nil, cqlerr.Invalidf("Table names shouldn't be more than %d characters long (got \"%s\")", maxNameLength, n.Name)
	}
	defs := make(map[string]cql.ColumnDef, len(s.Columns))
	for _, d := range s.Columns {
		if _, ok := defs[d.Name]; ok {
			return nil, cqlerr.Invalidf("Multiple definition of identifier %s", d.Name)
		}
		defs[d.Name] = d
	}
	t := catalog.NewTable(n.Keyspace, n.Name)
	w.release.SetDefaults(&t.Options)
	if err := w.setOptions(t, s.With); err != nil {
		return nil, err
	}
	types := make(map[string]*cqltype.Type, len(s.Columns))
	for _, d := range s.Columns {
		typ, err := cqltype.Parse(d.Type)
		if err != nil {
			return nil, err
		}
		types[d.Name] = typ
	}
	partition, clustering, err := primaryKey(s)
	if err != nil {
		return nil, err
	}
	order, err := clusteringOrder(clustering, s.ClusterOrder)
	if err != nil {
		return nil, err
	}
	for i, key := range [][]string{partition, clustering} {
		for j, name := range key {
			d, ok := defs[name]
			if !ok {
				return nil, cqlerr.Invalidf("Unknown definition %s referenced in PRIMARY KEY", name)
			}
			if err := checkKeyColumn(d, types[name]); err != nil {
				return nil, err
			}
			c := catalog.Column{Name: name, Type: types[name], Kind: catalog.PartitionKey}
			if i == 1 {
				if !c.Type.IsOrdered() {
					return nil, cqlerr.Unsupported("a clustering column of type " + c.Type.String())
				}
				c.Kind, c.Desc = catalog.Clustering, order[j]
			}
			t.Add(c)
			delete(defs, name)
		}
	}
	for _, d := range s.Columns {
		if _, rest := defs[d.Name]; !rest {
			continue
		}
		c := catalog.Column{Name: d.Name, Type: types[d.Name], Kind: catalog.Regular}
		if d.Static {
			if len(clustering) == 0 {
				return nil, cqlerr.Invalidf("Static columns are only useful (and thus allowed) if the table has at least one clustering column")
			}
			c.Kind = catalog.Static
		}
		t.Add(c)
	}
	if s.CompactStorage {
		return nil, cqlerr.Unsupported("COMPACT STORAGE")
	}
	return t, nil
}

// primaryKey returns the names of the key columns.
func primaryKey(s *cql.CreateTable) (partition, clustering []string, err error) {
	partition, clustering = s.PartitionKey, s.Clustering
	keys := min(len(partition), 1)
	for _, d := range s.Columns {
		if d.PrimaryKey {
			keys++
			partition = []string{d.Name}
		}
	}
	switch {
	case keys == 0:
		return nil, nil, cqlerr.Invalidf("No PRIMARY KEY specified (exactly one required)")
	case keys > 1:
		return nil, nil, cqlerr.Invalidf("Multiple PRIMARY KEYs specifed (exactly one required)")
	}
	seen := map[string]bool{}
	for _, name := range slices.Concat(partition, clustering) {
		if seen[name] {
			return nil, nil, cqlerr.Invalidf("Multiple definition of identifier %s", name)
		}
		seen[name] = true
	}
	return partition, clustering, nil
}

// clusteringOrder returns for each clustering column whether it is descending.
func clusteringOrder(clustering []string, orders []cql.Order) ([]bool, error) {
	desc := make([]bool, len(clustering))
	if len(orders) == 0 {
		return desc, nil
	}
	for i, name := range clustering {
		j := slices.IndexFunc(orders, func(o cql.Order) bool { return o.Column == name })
		if j < 0 {
			return nil, cqlerr.Invalidf("Missing CLUSTERING ORDER for column %s", name)
		}
		desc[i] = orders[j].Desc
	}
	if len(orders) > len(clustering) {
		return nil, cqlerr.Invalidf("Only clustering key columns can be defined in CLUSTERING ORDER directive")
	}
	for i, o := range orders {
		if o.Column != clustering[i] {
			return nil, cqlerr.Invalidf("The order of columns in the CLUSTERING ORDER directive must be the one of the clustering key (%s must appear before %s)",
				clustering[i], o.Column)
		}
	}
	return desc, nil
}

func checkKeyColumn(d cql.ColumnDef, t *cqltype.Type) error {
	switch {
	case d.Static:
		return cqlerr.Invalidf("Static column %s cannot be part of the PRIMARY KEY", d.Name)
	case t.Kind == cqltype.Duration:
		return cqlerr.Invalidf("duration type is not supported for PRIMARY KEY part %s", d.Name)
	case t.IsMultiCell():
		return cqlerr.Invalidf("Invalid non-frozen collection type for PRIMARY KEY component %s", d.Name)
	}
	return nil
}

func (w *change) dropTable(keyspace string, s *cql.DropTable) error {
	n, err := resolve(keyspace, s.Table)
	if err != nil {
		return err
	}
	t, err := w.table(keyspace, n)
	if err != nil {
		if s.IfExists {
			return errNothing
		}
		return err
	}
	switch {
	case t.Kind == catalog.System, t.Kind == catalog.Paxos:
		return cqlerr.New(cqlerr.Unauthorized, "Cannot DROP <table %s.%s>", n.Keyspace, n.Name)
	case w.activeLog(t):
		name := n.Name
		if !w.release.HasCDCOnTablets() {
			name = "<table " + n.Keyspace + "." + n.Name + ">"
		}
		return cqlerr.New(cqlerr.Unauthorized, "Cannot DROP cdc log table %s", name)
	}
	if base := w.next.Keyspaces[t.Keyspace].Base(t); base != nil {
		w.endStreams(base)
	}
	w.publish(catalog.Dropped, catalog.TargetTable, n.Keyspace, n.Name)
	w.dropLog(t)
	w.dropPaxos(t)
	w.forget(t)
	delete(w.keyspace(n.Keyspace).Tables, n.Name)
	return nil
}

// forget removes a table's rows from system_schema and its own from the store.
func (w *change) forget(t *catalog.Table) {
	w.removeTable(t)
	w.gone = append(w.gone, t)
}

// truncate removes a table's rows; its log keeps its own.
func (w *change) truncate(keyspace string, s *cql.Truncate) error {
	t, err := w.table(keyspace, s.Table)
	if err != nil {
		return err
	}
	switch t.Kind {
	case catalog.Paxos:
		return cqlerr.ErrPaxosTable
	case catalog.System:
		return cqlerr.Unsupported(fmt.Sprintf("TRUNCATE of %s.%s (it ruins a ScyllaDB node)", t.Keyspace, t.Name))
	}
	if err := w.c.o.Store.DropTable(t.StoreID); err != nil {
		return fmt.Errorf("truncate %s.%s: %w", t.Keyspace, t.Name, err)
	}
	return errNothing
}
