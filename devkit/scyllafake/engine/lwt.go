package engine

import (
	"context"
	"slices"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine/expr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// statement is a modification and the values of its execution.
type statement struct {
	m *modifyPlan
	x *expr.EvalCtx
}

// checkCASLevels refuses levels that a conditional request may not have.
func checkCASLevels(p *Params) error {
	if s := p.SerialConsistency; s != 0 && !s.serial() {
		return cqlerr.Invalidf("Invalid consistency for conditional update. Must be one of SERIAL or LOCAL_SERIAL")
	}
	if p.Consistency.serial() {
		return cqlerr.Invalidf("%s is not supported as conditional update commit consistency. Use ANY if you mean \"make sure it is accepted but I don't care how many replicas commit it for non-SERIAL reads\"", p.Consistency)
	}
	return nil
}

// serialLevel returns the level at which rounds are decided.
func serialLevel(p *Params) Consistency {
	if p.SerialConsistency.serial() {
		return p.SerialConsistency
	}
	return Serial
}

// execConditional runs a conditional statement, or a batch with conditions, on its one
// partition. Under the partition's lock it finishes earlier rounds, reads, checks, and
// writes with a timestamp of its own.
func (e *Engine) execConditional(ctx context.Context, list []statement, params *Params, cols []ColumnSpec) (*Result, error) {
	if err := checkCASLevels(params); err != nil {
		return nil, err
	}
	timed := e.arrive()
	r := round{e: e, list: list, table: list[0].m.table, cols: cols}
	if ok, err := r.begin(); !ok || err != nil {
		return &Result{}, err
	}
	if err := e.available(r.table.Keyspace, serialLevel(params)); err != nil {
		return nil, err
	}
	if err := e.ensurePaxos(r.table); err != nil {
		return nil, err
	}
	v, err := e.before(ctx, Op{Kind: OpCAS, Keyspace: r.table.Keyspace, Table: r.table.Name, Consistency: params.Consistency})
	if err != nil {
		return nil, err
	}
	unlock := e.locks.lock(r.id)
	defer unlock()
	if (v.Err != nil || v.Disconnect) && v.Fate == FateNormal {
		return nil, e.finish(v)
	}
	if err := e.finishDecided(r.id); err != nil {
		return nil, err
	}
	res, muts, err := r.run()
	if err != nil {
		return nil, err
	}
	if len(muts) > 0 {
		if err := e.commit(r.id, muts, params, v); err != nil {
			return nil, err
		}
	}
	if err := timed.conditional(ctx, r.table, r.key, len(muts)); err != nil {
		return nil, err
	}
	return res, e.finish(v)
}

// ensurePaxos makes the table NAME$paxos of a table, unless it has one.
func (e *Engine) ensurePaxos(t *catalog.Table) error {
	if e.paxos == nil {
		return nil
	}
	if err := e.paxos(t); err != nil {
		return serverError("create the table for conditional statements", err)
	}
	return nil
}

// commit carries out a decided round, unless the hook or an unreachable level leaves it
// for the next round on the partition.
func (e *Engine) commit(id partitionID, muts []*store.Mutation, params *Params, v Verdict) error {
	if err := e.available(muts[0].Table.Keyspace, params.Consistency); err != nil {
		e.decide(id, muts)
		return casTimeout(muts[0].Table, params.Consistency, err)
	}
	switch v.Fate {
	case FateDecided:
		e.decide(id, muts)
		return nil
	case FateLater:
		muts = cloneMutations(muts)
		e.after(v.Later, func() { _ = e.apply(muts) })
		return nil
	}
	return e.apply(muts)
}

// round is the execution of one conditional request.
type round struct {
	e     *Engine
	list  []statement
	table *catalog.Table
	cols  []ColumnSpec
	id    partitionID

	key    []byte
	ranges [][]store.Range // per statement
}

// begin finds the partition; ok is false if a key was unset, so that there is nothing
// to do.
func (r *round) begin() (ok bool, err error) {
	for i, s := range r.list {
		if s.m.table != r.table {
			return false, cqlerr.Invalidf("BATCH with conditions cannot span multiple tables")
		}
		keys, err := s.m.keys(s.x)
		if err != nil || len(keys) == 0 {
			return false, err
		}
		if len(keys) > 1 || i > 0 && !slices.Equal(keys[0], r.key) {
			return false, cqlerr.Invalidf("BATCH with conditions cannot span multiple partitions")
		}
		r.key = keys[0]
		ranges, unset, err := s.m.rest.RowRanges(s.x)
		if err != nil || unset {
			return false, err
		}
		r.ranges = append(r.ranges, ranges)
	}
	r.id = partitionID{r.table.StoreID, string(r.key)}
	return true, nil
}

// run reads, checks and builds the mutation; none if a condition failed.
func (r *round) run() (*Result, []*store.Mutation, error) {
	before, err := r.read()
	if err != nil {
		return nil, nil, err
	}
	applied := true
	views := make([]expr.RowView, len(r.list))
	founds := make([]bool, len(r.list))
	for i, s := range r.list {
		views[i] = expr.RowView{Table: r.table, Now: s.x.Now.Unix()}
		founds[i] = r.locate(i, before, &views[i])
		if s.m.cond == nil {
			continue
		}
		ok, err := s.m.cond.hold(s.x, &views[i], founds[i])
		if err != nil {
			return nil, nil, err
		}
		applied = applied && ok
	}
	res := &Result{Columns: r.cols, Table: r.table, Key: r.key}
	for i := range r.list {
		res.Rows = r.appendRow(res.Rows, applied, &views[i], founds[i])
		res.RowCount++
	}
	if !applied {
		return res, nil, nil
	}
	ts := r.e.clock.Micros()
	b := builder{e: r.e, ballot: true}
	for _, s := range r.list {
		if err := s.m.build(s.x, &b, ts); err != nil {
			return nil, nil, err
		}
	}
	return res, b.finish(), nil
}

// read reads the rows that conditions need.
func (r *round) read() (*partitionRows, error) {
	ranges := []store.Range{}
	anyRow := true
	for i, s := range r.list {
		if s.m.cond == nil || s.m.cond.onlyStatic() {
			continue
		}
		anyRow = false
		if r.ranges[i] == nil {
			ranges = nil
			break
		}
		ranges = append(ranges, r.ranges[i]...)
	}
	p, err := r.e.readPartition(r.table, r.key, ranges)
	if err != nil || p.live || !anyRow {
		return p, err
	}
	// With static conditions only, a partition with rows exists even if it has no
	// static content.
	it, err := r.e.store.Scan(store.Scan{Table: r.table, Key: r.key, Token: r.table.Token(r.key)})
	if err != nil {
		return nil, serverError("read", err)
	}
	defer it.Close()
	p.live = it.NextPartition()
	if err := it.Err(); err != nil {
		return nil, serverError("read", err)
	}
	return p, nil
}

// locate makes v the row of a statement's condition and reports whether it exists. A
// statement whose condition does not need a row of its own uses the static row instead,
// if the partition is not empty.
func (r *round) locate(i int, p *partitionRows, v *expr.RowView) bool {
	m := r.list[i].m
	clustering := [][]byte(nil)
	if len(r.ranges[i]) > 0 {
		clustering = r.ranges[i][0].Start.Prefix
	}
	plain := len(r.table.Clustering) == 0
	if plain || len(clustering) > 0 {
		if row := p.find(rowKey(clustering)); row != nil {
			v.Static = p.static
			v.SetRow(row)
			v.Partition, _ = r.table.DecodeKey(r.key, nil)
			return true
		}
	}
	if !p.live || plain || len(clustering) > 0 && m.cond != nil && m.cond.regular {
		return false
	}
	v.Static = p.static
	v.Partition, _ = r.table.DecodeKey(r.key, nil)
	return true
}

// appendRow appends a row of the result: values before the change, nulls if there was
// no row.
func (r *round) appendRow(dst []byte, applied bool, v *expr.RowView, found bool) []byte {
	dst = cqltype.AppendElement(dst, cqltype.EncodeBool(applied))
	for _, c := range r.cols[1:] {
		if !found {
			dst = cqltype.AppendElement(dst, nil)
			continue
		}
		dst = v.AppendColumn(dst, r.table.ByName[c.Name])
	}
	return dst
}
