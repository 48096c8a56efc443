package engine

import (
	"context"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine/expr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// batchPlan is a planned BEGIN … APPLY BATCH text.
type batchPlan struct {
	kind   cql.BatchKind
	list   []*modifyPlan
	using  using
	result []ColumnSpec // if conditional
}

// maxBatchBytes limits the weight of a batch of several partitions.
const maxBatchBytes = 1024 * 1024

func (p *planner) planBatch(s *cql.Batch) (*Plan, error) {
	p.Begin(s.Binds)
	if s.Using.TTL != nil {
		return nil, cqlerr.Invalidf("Global TTL on the BATCH statement is not supported.")
	}
	b := &batchPlan{kind: s.Kind}
	var err error
	var tables []*catalog.Table
	for _, stmt := range s.Statements {
		if s.Using.Timestamp != nil && statementUsing(stmt).Timestamp != nil {
			return nil, cqlerr.Invalidf("Timestamp must be set either on BATCH or individual statements")
		}
		m, err := p.modification(stmt)
		if err != nil {
			return nil, err
		}
		b.list = append(b.list, m)
		if len(tables) == 0 || tables[len(tables)-1] != m.table {
			tables = append(tables, m.table)
		}
	}
	if err := checkBatch(s.Kind, b.list); err != nil {
		return nil, err
	}
	conditional := isConditional(b.list)
	if conditional && s.Using.Timestamp != nil {
		return nil, cqlerr.Invalidf("Cannot provide custom timestamp for conditional BATCH")
	}
	p.Table = nil
	if s.Using.Timestamp != nil {
		spec := expr.ColumnSpec{Keyspace: "[batch]", Table: "[batch]", Name: "[timestamp]", Type: cqltype.TBigInt}
		if b.using.timestamp, err = p.Term(s.Using.Timestamp, spec, nil); err != nil {
			return nil, err
		}
	}
	if err := expr.CheckTimeout(s.Using.Timeout); err != nil {
		return nil, err
	}
	if conditional {
		b.result = batchColumns(b.list)
	}
	plan := p.finish(b, b.result)
	plan.Tables = tables
	if plan.GlobalBinds && len(tables) == 1 {
		plan.PKIndexes = p.keyIndexes(tables[0])
	}
	return plan, nil
}

func statementUsing(s cql.Statement) cql.Using {
	switch s := s.(type) {
	case *cql.Insert:
		return s.Using
	case *cql.Update:
		return s.Using
	case *cql.Delete:
		return s.Using
	}
	return cql.Using{}
}

// checkBatch refuses statements that are not allowed in one batch.
func checkBatch(kind cql.BatchKind, list []*modifyPlan) error {
	if kind == cql.BatchCounter && len(list) > 0 {
		return cqlerr.Invalidf("Cannot include non-counter statement in a counter batch")
	}
	if !isConditional(list) {
		return nil
	}
	for _, m := range list {
		if m.table != list[0].table {
			return cqlerr.Invalidf("BATCH with conditions cannot span multiple tables")
		}
	}
	return nil
}

func isConditional(list []*modifyPlan) bool {
	for _, m := range list {
		if m.cond != nil {
			return true
		}
	}
	return false
}

// batchColumns returns the result metadata of a conditional batch.
func batchColumns(list []*modifyPlan) []ColumnSpec {
	shown := map[*catalog.Column]bool{}
	for _, m := range list {
		if m.cond == nil {
			continue
		}
		for c := range m.cond.columns() {
			shown[c] = true
		}
	}
	return conditionColumns(list[0].table, shown, true)
}

func (e *Engine) execBatchText(ctx context.Context, b *batchPlan, x *expr.EvalCtx, params *Params) (*Result, error) {
	list := make([]statement, len(b.list))
	for i, m := range b.list {
		list[i] = statement{m, x}
	}
	if b.result != nil {
		return e.execConditional(ctx, list, params, b.result)
	}
	ts, err := evalTimestamp(x, b.using.timestamp, 0)
	if err != nil {
		return nil, err
	}
	return e.runBatch(ctx, b.kind, list, params, ts, b.using.timestamp != nil)
}

// ExecuteBatch runs a BATCH request; kind is as sent, unknown kinds count as logged.
// Its errors are the same as Execute's.
func (e *Engine) ExecuteBatch(ctx context.Context, kind cql.BatchKind, items []BatchItem, params Params) (*Result, error) {
	now := e.clock.Now()
	plans := make([]*modifyPlan, len(items))
	list := make([]statement, len(items))
	contexts := make([]expr.EvalCtx, len(items))
	for i := range items {
		m, ok := items[i].Plan.exec.(*modifyPlan)
		if !ok {
			return nil, ErrNotBatchable
		}
		if n := len(items[i].Values); n != m.markers {
			return nil, cqlerr.Invalidf("There were %d markers(?) in CQL but %d bound variables", m.markers, n)
		}
		plans[i] = m
		contexts[i] = expr.EvalCtx{Clock: e.clock, Vals: items[i].Values, Now: now}
		list[i] = statement{m, &contexts[i]}
	}
	if len(list) == 0 {
		return &Result{}, nil
	}
	if err := checkBatch(kind, plans); err != nil {
		return nil, err
	}
	if isConditional(plans) {
		return e.execConditional(ctx, list, &params, batchColumns(plans))
	}
	return e.runBatch(ctx, kind, list, &params, 0, false)
}

// runBatch builds one mutation per partition of unconditional statements and writes
// them as one unit. ts is used if hasTS is set.
func (e *Engine) runBatch(ctx context.Context, kind cql.BatchKind, list []statement, params *Params, ts int64, hasTS bool) (*Result, error) {
	if len(list) == 0 {
		return &Result{}, nil
	}
	if params.Consistency.serial() {
		return nil, errNotConditional
	}
	if !hasTS {
		ts = e.timestamp(params)
	}
	b := builder{e: e}
	for _, s := range list {
		if err := s.m.build(s.x, &b, ts); err != nil {
			return nil, err
		}
	}
	muts := b.finish()
	if len(muts) > 1 && weight(muts) > maxBatchBytes {
		return nil, cqlerr.Invalidf("Batch too large")
	}
	op := OpLoggedBatch
	if kind == cql.BatchUnlogged {
		op = OpUnloggedBatch
	}
	return &Result{}, e.write(ctx, op, muts, params)
}

// weight returns about the size of mutations in a node's memory, the size that ScyllaDB
// limits.
func weight(muts []*store.Mutation) int {
	const perRow, perCell = 64, 32
	n := 0
	row := func(r *store.Row) {
		if r == nil {
			return
		}
		n += perRow
		for _, v := range r.Clustering {
			n += len(v)
		}
		for i := range r.Columns {
			d := &r.Columns[i]
			n += perCell
			if d.Cell != nil {
				n += len(d.Cell.Value)
			}
			for j := range d.Elements {
				n += perCell + len(d.Elements[j].Path) + len(d.Elements[j].Value)
			}
		}
	}
	for _, m := range muts {
		row(m.Static)
		for i := range m.Rows {
			row(&m.Rows[i])
		}
		n += perRow * len(m.Ranges)
	}
	return n
}
