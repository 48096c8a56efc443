package engine

import (
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine/expr"
)

// selectPlan is a planned SELECT.
type selectPlan struct {
	table  *catalog.Table
	rest   *expr.Restrictions
	result []ColumnSpec

	selected []expr.Selected
	// count means count(*).
	count bool

	distinct bool
	reversed bool

	limit, perPartition expr.Term
	warnings            []string
}

const warnFiltering = "This query should use ALLOW FILTERING and will be rejected in future versions."

func (p *planner) planSelect(s *cql.Select) (*Plan, error) {
	p.Begin(s.Binds)
	if err := p.Resolve(s.From); err != nil {
		return nil, err
	}
	if s.TTL != nil {
		return nil, cqlerr.Invalidf("Specifying TTL is not legal for SELECT statement")
	}
	if s.Timestamp != nil {
		return nil, cqlerr.Invalidf("Specifying TIMESTAMP is not legal for SELECT statement")
	}
	q := &selectPlan{table: p.Table, distinct: s.Distinct}
	if err := p.selectClause(q, s); err != nil {
		return nil, err
	}
	var err error
	if q.rest, err = p.Restrictions(s.Where, s.AllowFiltering); err != nil {
		return nil, err
	}
	for _, f := range []func(*selectPlan, *cql.Select) error{
		p.checkDistinct, p.checkStatic, p.orderClause, p.checkFiltering, p.selectLimits,
	} {
		if err := f(q, s); err != nil {
			return nil, err
		}
	}
	return p.finish(q, q.result), nil
}

func (p *planner) selectClause(q *selectPlan, s *cql.Select) error {
	if s.Star {
		for _, c := range p.Table.Columns() {
			q.selected = append(q.selected, expr.SelectColumn(c))
		}
	}
	for _, sel := range s.Selectors {
		c := expr.Selected{Name: "count", Type: cqltype.TBigInt}
		if expr.IsCount(sel.Expr) {
			if len(s.Selectors) > 1 {
				return cqlerr.Unsupported("count(*) beside other selectors")
			}
			q.count = true
		} else {
			var err error
			if c, err = p.Selector(sel.Expr); err != nil {
				return err
			}
		}
		if sel.Alias != "" {
			c.Name = sel.Alias
		}
		q.selected = append(q.selected, c)
	}
	for _, c := range q.selected {
		q.result = append(q.result, p.Spec(c.Name, c.Type))
	}
	return nil
}

// checkStatic refuses restrictions on rows if only static columns are read.
func (p *planner) checkStatic(q *selectPlan, s *cql.Select) error {
	static := false
	for _, sel := range s.Selectors {
		for name := range cql.Columns(sel.Expr) {
			switch p.Table.ByName[name].Kind {
			case catalog.Static:
				static = true
			case catalog.PartitionKey:
			default:
				return nil
			}
		}
	}
	if static && q.rest.RestrictsRows() {
		return cqlerr.Invalidf("Cannot restrict clustering columns when selecting only static columns")
	}
	return nil
}

func (p *planner) checkDistinct(q *selectPlan, _ *cql.Select) error {
	if !q.distinct {
		return nil
	}
	asked := map[*catalog.Column]bool{}
	for _, s := range q.selected {
		if s.Col == nil {
			continue
		}
		if s.Col.Kind == catalog.Clustering || s.Col.Kind == catalog.Regular {
			return cqlerr.Invalidf("SELECT DISTINCT queries must only request partition key columns and/or static columns (not %s)", s.Col.Name)
		}
		asked[s.Col] = true
	}
	for _, c := range p.Table.PartitionKey {
		if len(asked) > 0 && !asked[c] {
			return cqlerr.Invalidf("SELECT DISTINCT queries must request all the partition key columns (missing %s)", c.Name)
		}
	}
	if q.rest.RestrictsRows() {
		return cqlerr.Invalidf("SELECT DISTINCT with WHERE clause only supports restriction by partition key and/or static columns.")
	}
	return nil
}

func (p *planner) orderClause(q *selectPlan, s *cql.Select) error {
	if len(s.OrderBy) == 0 {
		return nil
	}
	if q.rest.HasKeyIn() {
		return cqlerr.Unsupported("ORDER BY of several partitions")
	}
	if !q.rest.NamesPartitions() {
		return cqlerr.Invalidf("ORDER BY is only supported when the partition key is restricted by an EQ or an IN.")
	}
	at := 0
	for i, o := range s.OrderBy {
		c := p.Table.ByName[o.Column]
		if c == nil {
			return cqlerr.Invalidf("Order by on unknown column %s", o.Column)
		}
		if c.Kind != catalog.Clustering {
			return cqlerr.Invalidf("Order by is currently only supported on the clustered columns of the PRIMARY KEY, got %s", o.Column)
		}
		for at < c.Position && q.rest.HasEquality(p.Table.Clustering[at]) {
			at++
		}
		if at != c.Position {
			return cqlerr.Invalidf("Unsupported order by relation - column %s doesn't have an ordering or EQ relation.", p.Table.Clustering[at].Name)
		}
		at++
		reversed := o.Desc != c.Desc
		if i > 0 && reversed != q.reversed {
			return cqlerr.Invalidf("Unsupported order by relation - only reversing all columns is supported, but column %s has opposite ordering", o.Column)
		}
		q.reversed = reversed
	}
	return nil
}

// checkFiltering refuses a clause that would have to filter out rows it read, unless
// ALLOW FILTERING permits it.
func (p *planner) checkFiltering(q *selectPlan, s *cql.Select) error {
	q.rest.FilterByPartOfKey()
	if !s.AllowFiltering {
		if err := q.rest.MayFilter(); err != nil {
			return err
		}
		if q.rest.RestrictsRows() && !q.rest.NamesPartitions() {
			q.warnings = []string{warnFiltering}
		}
	}
	return nil
}

func (p *planner) selectLimits(q *selectPlan, s *cql.Select) error {
	var err error
	spec := p.Spec("[limit]", cqltype.TInt)
	if s.PerPartitionLimit != nil {
		if q.distinct {
			return cqlerr.Invalidf("PER PARTITION LIMIT is not allowed with SELECT DISTINCT queries")
		}
		if q.perPartition, err = p.Term(s.PerPartitionLimit, spec, nil); err != nil {
			return err
		}
	}
	if s.Limit != nil {
		if q.limit, err = p.Term(s.Limit, spec, nil); err != nil {
			return err
		}
	}
	return expr.CheckTimeout(s.Timeout)
}
