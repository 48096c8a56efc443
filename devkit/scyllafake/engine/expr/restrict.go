package expr

import (
	"slices"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// Restrictions are a WHERE clause, sorted by the use of its parts: they name
// partitions, name rows in partitions, or filter rows that are read.
type Restrictions struct {
	table *catalog.Table
	// Keys has one list per partition key column, of = and IN; all are
	// non-empty if the clause names partitions.
	Keys [][]*Relation
	// Tokens are the bounds of the token range.
	Tokens []tokenBound
	// Rows are the clustering restrictions that make ranges: per clustering column (a
	// prefix of them), or on several columns in slices.
	Rows  [][]*Relation
	Multi []*Relation
	// Filters are evaluated on every row read.
	Filters []*Relation
}

// tokenBound is a bound of token(…), or an equality.
type tokenBound struct {
	op    cql.Op
	value Term
}

// NamesPartitions reports whether the clause names partitions.
func (r *Restrictions) NamesPartitions() bool {
	for _, k := range r.Keys {
		if len(k) == 0 {
			return false
		}
	}
	return true
}

// HasKeyIn reports whether a partition key column is restricted by IN.
func (r *Restrictions) HasKeyIn() bool { return slices.ContainsFunc(r.Keys, HasIn) }

// HasIn reports whether a relation of the list is IN.
func HasIn(list []*Relation) bool {
	return slices.ContainsFunc(list, func(r *Relation) bool { return r.Op == cql.OpIn })
}

// RestrictsRows reports whether clustering columns are restricted by ranges.
func (r *Restrictions) RestrictsRows() bool { return len(r.Rows) > 0 || len(r.Multi) > 0 }

// NamesRows reports whether every clustering column is restricted by = or IN.
func (r *Restrictions) NamesRows() bool {
	return len(r.Rows) == len(r.table.Clustering) && !slices.ContainsFunc(r.Rows, isSlice)
}

// isSlice reports whether a column has restrictions other than = and IN.
func isSlice(list []*Relation) bool {
	return !slices.ContainsFunc(list, func(r *Relation) bool { return r.Op == cql.OpEQ || r.Op == cql.OpIn })
}

// FirstFree returns the first clustering column that is not restricted.
func (r *Restrictions) FirstFree() *catalog.Column {
	n := len(r.Rows)
	for _, m := range r.Multi {
		n = max(n, len(m.Cols))
	}
	if n < len(r.table.Clustering) {
		return r.table.Clustering[n]
	}
	return nil
}

func (p *Compiler) whereColumn(name string) (*catalog.Column, error) {
	if c := p.Table.ByName[name]; c != nil {
		return c, nil
	}
	return nil, cqlerr.Invalidf("Undefined name %s in where clause ('unresolved(%s)')", name, name)
}

// Restrictions compiles a WHERE clause. filtering means that rows may be filtered after
// they are read.
func (p *Compiler) Restrictions(where []cql.Relation, filtering bool) (*Restrictions, error) {
	r := &Restrictions{table: p.Table, Keys: make([][]*Relation, len(p.Table.PartitionKey))}
	clustering := make([][]*Relation, len(p.Table.Clustering)) // by position
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
		col := rel.Cols[0]
		switch {
		case rel.multi:
			r.Multi = append(r.Multi, rel)
		case col.Kind == catalog.PartitionKey && (rel.Op == cql.OpEQ || rel.Op == cql.OpIn):
			r.Keys[col.Position] = append(r.Keys[col.Position], rel)
		case col.Kind == catalog.PartitionKey && !filtering:
			return nil, cqlerr.Invalidf("Only EQ and IN relation are supported on the partition key (unless you use the token() function or allow filtering)")
		case col.Kind == catalog.Clustering:
			clustering[col.Position] = append(clustering[col.Position], rel)
		default:
			r.Filters = append(r.Filters, rel)
		}
	}
	if err := p.checkTokens(r); err != nil {
		return nil, err
	}
	if err := p.sortClustering(r, clustering, filtering); err != nil {
		return nil, err
	}
	return r, nil
}

// FilterByPartOfKey turns restrictions of some partition key columns, which name no
// partition, into filters.
func (r *Restrictions) FilterByPartOfKey() {
	if r.NamesPartitions() {
		return
	}
	for i := range r.Keys {
		r.Filters = append(r.Filters, r.Keys[i]...)
		r.Keys[i] = nil
	}
}

// sortClustering splits the single-column restrictions on clustering columns: some make
// ranges, the others filter.
func (p *Compiler) sortClustering(r *Restrictions, by [][]*Relation, filtering bool) error {
	if len(r.Multi) > 0 {
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
			r.Rows = append(r.Rows, list)
			open = !isSlice(list)
			continue
		}
		if !filtering {
			prev := by[i-1]
			if len(prev) == 0 {
				return cqlerr.Invalidf("PRIMARY KEY column \"%s\" cannot be restricted as preceding column \"%s\" is not restricted",
					p.Table.Clustering[i].Name, firstEmpty(p.Table, by))
			}
			return cqlerr.Invalidf("Clustering column \"%s\" cannot be restricted (preceding column \"%s\" is restricted by a non-EQ relation)",
				p.Table.Clustering[i].Name, p.Table.Clustering[i-1].Name)
		}
		r.Filters = append(r.Filters, list...)
	}
	return nil
}

func firstEmpty(t *catalog.Table, by [][]*Relation) string {
	for i, list := range by {
		if len(list) == 0 {
			return t.Clustering[i].Name
		}
	}
	return ""
}

// NeedsFiltering reports whether rows must be read and filtered out.
func (r *Restrictions) NeedsFiltering() bool { return len(r.Filters) > 0 }

// MayFilter returns the error for a clause that needs ALLOW FILTERING, or nil.
func (r *Restrictions) MayFilter() error {
	if len(r.Filters) == 0 {
		return nil
	}
	return ErrNeedsFiltering
}

func (p *Compiler) tokenRelation(r *Restrictions, w *cql.Relation) error {
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
	if len(w.Columns) != len(p.Table.PartitionKey) {
		return cqlerr.Invalidf("The token() function must be applied to all partition key components or none of them")
	}
	switch w.Op {
	case cql.OpEQ, cql.OpLT, cql.OpLE, cql.OpGT, cql.OpGE:
	default:
		return cqlerr.Invalidf("%s cannot be used with the token function", OpTexts[w.Op])
	}
	t, err := p.Term(w.Value, p.Spec("partition key token", cqltype.TBigInt), nil)
	r.Tokens = append(r.Tokens, tokenBound{w.Op, t})
	return err
}

// checkTokens refuses a clause that restricts the key both by token and by value.
func (p *Compiler) checkTokens(r *Restrictions) error {
	if len(r.Tokens) == 0 {
		return nil
	}
	var defs []string
	for i, k := range r.Keys {
		if len(k) > 0 {
			defs = append(defs, definition(p.Table.PartitionKey[i]))
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

// HasEquality reports whether a key column is restricted by =.
func (r *Restrictions) HasEquality(c *catalog.Column) bool {
	var list []*Relation
	if c.Kind == catalog.PartitionKey {
		list = r.Keys[c.Position]
	} else if c.Position < len(r.Rows) {
		list = r.Rows[c.Position]
	}
	return slices.ContainsFunc(list, func(r *Relation) bool { return r.Op == cql.OpEQ })
}
