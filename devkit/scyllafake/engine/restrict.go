package engine

import (
	"slices"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// restrictions are a WHERE clause, sorted by the use of its parts: they name
// partitions, name rows in partitions, or filter rows that are read.
type restrictions struct {
	table *catalog.Table
	// keys has one list per partition key column, of = and IN; all are
	// non-empty if the clause names partitions.
	keys [][]*relation
	// tokens are the bounds of the token range.
	tokens []tokenBound
	// rows are the clustering restrictions that make ranges: per clustering column (a
	// prefix of them), or on several columns in slices.
	rows  [][]*relation
	multi []*relation
	// filters are evaluated on every row read.
	filters []*relation
	// indexed means that a secondary index serves one of the filters.
	indexed bool
}

// tokenBound is a bound of token(…), or an equality.
type tokenBound struct {
	op    cql.Op
	value term
}

// namesPartitions reports whether the clause names partitions.
func (r *restrictions) namesPartitions() bool {
	for _, k := range r.keys {
		if len(k) == 0 {
			return false
		}
	}
	return true
}

func (r *restrictions) hasKeyIn() bool { return slices.ContainsFunc(r.keys, hasIn) }

func hasIn(list []*relation) bool {
	return slices.ContainsFunc(list, func(r *relation) bool { return r.op == cql.OpIn })
}

// restrictsRows reports whether clustering columns are restricted by ranges.
func (r *restrictions) restrictsRows() bool { return len(r.rows) > 0 || len(r.multi) > 0 }

// namesRows reports whether every clustering column is restricted by = or IN.
func (r *restrictions) namesRows() bool {
	n := len(r.table.Clustering)
	for _, m := range r.multi {
		if (m.op == cql.OpEQ || m.op == cql.OpIn) && len(m.cols) == n {
			return true
		}
	}
	return len(r.rows) == n && !slices.ContainsFunc(r.rows, isSlice)
}

// isSlice reports whether a column has restrictions other than = and IN.
func isSlice(list []*relation) bool {
	return !slices.ContainsFunc(list, func(r *relation) bool { return r.op == cql.OpEQ || r.op == cql.OpIn })
}

// firstFree returns the first clustering column that is not restricted.
func (r *restrictions) firstFree() *catalog.Column {
	n := len(r.rows)
	for _, m := range r.multi {
		n = max(n, len(m.cols))
	}
	if n < len(r.table.Clustering) {
		return r.table.Clustering[n]
	}
	return nil
}

func (p *planner) whereColumn(name string) (*catalog.Column, error) {
	if c := p.table.ByName[name]; c != nil {
		return c, nil
	}
	return nil, cqlerr.Invalidf("Undefined name %s in where clause ('unresolved(%s)')", name, name)
}

// restrictions compiles a WHERE clause. filtering means that rows may be filtered after
// they are read.
func (p *planner) restrictions(where []cql.Relation, filtering bool) (*restrictions, error) {
	r := &restrictions{table: p.table, keys: make([][]*relation, len(p.table.PartitionKey))}
	clustering := make([][]*relation, len(p.table.Clustering)) // by position
	for i := range where {
		w := &where[i]
		if w.Token {
			if err := p.tokenRelation(r, w); err != nil {
				return nil, err
			}
			continue
		}
		rel, err := p.relation(w, p.whereColumn)
		if err != nil {
			return nil, err
		}
		col := rel.cols[0]
		plain := rel.elem == nil && rel.op != cql.OpContains && rel.op != cql.OpContainsKey && rel.op != cql.OpLike
		switch {
		case rel.multi:
			r.multi = append(r.multi, rel)
		case col.Kind == catalog.PartitionKey && (rel.op == cql.OpEQ || rel.op == cql.OpIn):
			r.keys[col.Position] = append(r.keys[col.Position], rel)
		case col.Kind == catalog.PartitionKey && !filtering:
			return nil, cqlerr.Invalidf("Only EQ and IN relation are supported on the partition key (unless you use the token() function or allow filtering)")
		case col.Kind == catalog.Clustering && plain:
			clustering[col.Position] = append(clustering[col.Position], rel)
		default:
			r.filters = append(r.filters, rel)
		}
	}
	if err := p.checkTokens(r); err != nil {
		return nil, err
	}
	if err := p.sortClustering(r, clustering, filtering); err != nil {
		return nil, err
	}
	r.indexed = r.servedByIndex()
	return r, nil
}

// filterByPartOfKey turns restrictions of some partition key columns, which name no
// partition, into filters.
func (r *restrictions) filterByPartOfKey() {
	if r.namesPartitions() {
		return
	}
	for i := range r.keys {
		r.filters = append(r.filters, r.keys[i]...)
		r.keys[i] = nil
	}
	r.indexed = r.servedByIndex()
}

// sortClustering splits the single-column restrictions on clustering columns: some make
// ranges, the others filter.
func (p *planner) sortClustering(r *restrictions, by [][]*relation, filtering bool) error {
	if len(r.multi) > 0 {
		for _, list := range by {
			if len(list) == 0 {
				continue
			}
			return cqlerr.Invalidf("Mixing single column relations and multi column relations on clustering columns is not allowed")
		}
		return nil
	}
	open := true // no gap and no slice so far
	for i, list := range by {
		if len(list) == 0 {
			open = false
			continue
		}
		if open {
			r.rows = append(r.rows, list)
			open = !isSlice(list)
			continue
		}
		if !filtering && !p.indexedColumn(list) {
			prev := by[i-1]
			if len(prev) == 0 {
				return cqlerr.Invalidf("PRIMARY KEY column \"%s\" cannot be restricted as preceding column \"%s\" is not restricted",
					p.table.Clustering[i].Name, firstEmpty(p.table, by))
			}
			return cqlerr.Invalidf("Clustering column \"%s\" cannot be restricted (preceding column \"%s\" is restricted by a non-EQ relation)",
				p.table.Clustering[i].Name, p.table.Clustering[i-1].Name)
		}
		r.filters = append(r.filters, list...)
	}
	return nil
}

func firstEmpty(t *catalog.Table, by [][]*relation) string {
	for i, list := range by {
		if len(list) == 0 {
			return t.Clustering[i].Name
		}
	}
	return ""
}

func (p *planner) indexedColumn(list []*relation) bool {
	return slices.ContainsFunc(list, func(r *relation) bool { return indexServes(p.table, r) })
}

// servedByIndex reports whether an index can find the rows, so that the
// statement needs no ALLOW FILTERING.
func (r *restrictions) servedByIndex() bool {
	return slices.ContainsFunc(r.filters, func(f *relation) bool { return indexServes(r.table, f) })
}

func indexServes(t *catalog.Table, r *relation) bool {
	if r.multi || r.op != cql.OpEQ && r.op != cql.OpContains && r.op != cql.OpContainsKey {
		return false
	}
	return slices.ContainsFunc(t.Indexes, func(i *catalog.Index) bool { return i.Target == r.cols[0].Name })
}

// needsFiltering reports whether rows must be read and filtered out.
func (r *restrictions) needsFiltering() bool { return len(r.filters) > 0 }

// mayFilter returns the error for a clause that needs ALLOW FILTERING, or nil.
func (r *restrictions) mayFilter() error {
	if len(r.filters) == 0 || r.indexed && len(r.filters) == 1 {
		return nil
	}
	return errNeedsFiltering
}

func (p *planner) tokenRelation(r *restrictions, w *cql.Relation) error {
	defs := make([]string, len(w.Columns))
	ordered := true
	for i, name := range w.Columns {
		c, err := p.whereColumn(name)
		if err != nil {
			return err
		}
		defs[i] = definition(c)
		ordered = ordered && c.Kind == catalog.PartitionKey && c.Position == i
	}
	if !ordered {
		return cqlerr.Invalidf("The token function arguments must be in the partition key order: [%s]", strings.Join(defs, ", "))
	}
	if len(w.Columns) != len(p.table.PartitionKey) {
		return cqlerr.Invalidf("The token() function must be applied to all partition key components or none of them")
	}
	switch w.Op {
	case cql.OpEQ, cql.OpLT, cql.OpLE, cql.OpGT, cql.OpGE:
	default:
		return cqlerr.Invalidf("%s cannot be used with the token function", opTexts[w.Op])
	}
	t, err := p.term(w.Value, p.spec("partition key token", cqltype.TBigInt), nil)
	r.tokens = append(r.tokens, tokenBound{w.Op, t})
	return err
}

// checkTokens refuses a clause that restricts the key both by token and by value.
func (p *planner) checkTokens(r *restrictions) error {
	if len(r.tokens) == 0 {
		return nil
	}
	var defs []string
	for i, k := range r.keys {
		if len(k) > 0 {
			defs = append(defs, definition(p.table.PartitionKey[i]))
		}
	}
	if len(defs) == 0 {
		return nil
	}
	return cqlerr.Invalidf("Columns \"%s\" cannot be restricted by both a normal relation and a token relation", strings.Join(defs, ", "))
}

// definition formats a column as ScyllaDB's messages on tokens do.
func definition(c *catalog.Column) string {
	kinds := [...]string{"PARTITION_KEY", "CLUSTERING_COLUMN", "STATIC", "REGULAR"}
	index := "null"
	if c.Kind <= catalog.Clustering {
		index = itoa(c.Position)
	}
	return "ColumnDefinition{name=" + c.Name + ", type=" + c.Type.MarshalName() + ", kind=" + kinds[c.Kind] +
		", componentIndex=" + index + ", droppedAt=-9223372036854775808}"
}
