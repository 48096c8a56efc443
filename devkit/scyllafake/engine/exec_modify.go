package engine

import (
	"context"
	"math"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine/expr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// The limits of USING TTL and USING TIMESTAMP.
const (
	maxTTL       = 630720000
	maxTimeAhead = 3 * 24 * time.Hour
)

var errNotConditional = cqlerr.Invalidf("You must use conditional updates for serializable writes")

func (e *Engine) execModify(ctx context.Context, m *modifyPlan, x *expr.EvalCtx, params *Params) (*Result, error) {
	if m.cond != nil {
		return e.execConditional(ctx, []statement{{m, x}}, params, conditionColumns(m.table, m.cond.columns(), false))
	}
	if params.Consistency.serial() {
		return nil, errNotConditional
	}
	b := builder{e: e}
	if err := m.build(x, &b, e.timestamp(params)); err != nil {
		return nil, err
	}
	res, muts := &Result{}, b.finish()
	if len(muts) == 1 {
		res.Table, res.Key = muts[0].Table, muts[0].Key
	}
	return res, e.write(ctx, OpUnloggedBatch, muts, params)
}

// timestamp returns the timestamp of a request without USING TIMESTAMP.
func (e *Engine) timestamp(params *Params) int64 {
	switch {
	case params.HasTimestamp:
		return params.Timestamp
	case params.ServerTimestamp != nil:
		return params.ServerTimestamp()
	}
	return e.clock.Micros()
}

// evalTimestamp evaluates USING TIMESTAMP; def is the value without one.
func evalTimestamp(x *expr.EvalCtx, t expr.Term, def int64) (int64, error) {
	if t == nil {
		return def, nil
	}
	v, err := t.Eval(x)
	if err != nil {
		return 0, err
	}
	if v.Unset {
		return def, nil
	}
	ts, ok := cqltype.TBigInt.DecodeInt(v.Bytes)
	switch {
	case !ok:
		return 0, cqlerr.Invalidf("Invalid null value of timestamp")
	case ts == math.MinInt64:
		return 0, cqlerr.Invalidf("Out of bound timestamp, must be in [%d, %d]", math.MinInt64+1, int64(math.MaxInt64))
	case ts > x.Now.Add(maxTimeAhead).UnixMicro():
		return 0, cqlerr.Invalidf("Cannot provide a timestamp more than 3 days into the future. If this was not intended, make sure the timestamp is in microseconds")
	}
	return ts, nil
}

// stamp evaluates the attributes of a statement. Its timestamp is ts unless it has one
// itself; that of a ballot is always used.
func (m *modifyPlan) stamp(x *expr.EvalCtx, ts int64, ballot bool) (stamp, error) {
	own, err := evalTimestamp(x, m.using.timestamp, ts)
	if err != nil {
		return stamp{}, err
	}
	s := stamp{ts: own}
	if ballot {
		s.ts = ts
	}
	if m.kind == deleteKind {
		return s, nil
	}
	s.ttl = m.table.Options.DefaultTTL
	if m.using.ttl != nil {
		v, err := m.using.ttl.Eval(x)
		if err != nil {
			return s, err
		}
		if !v.Unset {
			n, ok := cqltype.TInt.DecodeInt(v.Bytes)
			switch {
			case !ok:
				return s, cqlerr.Invalidf("Invalid null value of TTL")
			case n < 0:
				return s, cqlerr.Invalidf("A TTL must be greater or equal to 0")
			case n > maxTTL:
				return s, cqlerr.Invalidf("ttl is too large. requested (%d) maximum (%d)", n, maxTTL)
			}
			s.ttl = int32(n)
		}
	}
	if s.ttl > 0 {
		s.expiry = x.Now.Unix() + int64(s.ttl)
	}
	return s, nil
}

// build adds the changes of the statement to b. ts is the request's timestamp.
func (m *modifyPlan) build(x *expr.EvalCtx, b *builder, ts int64) error {
	at, err := m.stamp(x, ts, b.ballot)
	if err != nil {
		return err
	}
	keys, err := m.keys(x)
	if err != nil || len(keys) == 0 {
		return err
	}
	ranges, unset, err := m.rest.RowRanges(x)
	if err != nil || unset || ranges != nil && len(ranges) == 0 {
		return err
	}
	for _, key := range keys {
		if m.kind == deleteKind && len(m.ops) == 0 {
			m.deleteRows(b.partition(m.table, key), ranges, at.ts)
			continue
		}
		if err := m.buildPartition(x, b.partition(m.table, key), ranges, at); err != nil {
			return err
		}
	}
	return nil
}

// keys returns the partitions of the statement; none if a part was unset.
func (m *modifyPlan) keys(x *expr.EvalCtx) ([][]byte, error) {
	x.StrictKeys = true
	keys, unset, err := m.rest.PartitionKeys(x)
	if err != nil || unset {
		return nil, err
	}
	for _, k := range keys {
		if err := checkKey(k); err != nil {
			return nil, err
		}
	}
	return keys, nil
}

func checkKey(k []byte) error {
	if len(k) == 0 {
		return errEmptyKey
	}
	if len(k) > math.MaxUint16 {
		return cqlerr.Invalidf("Key length of %d is longer than maximum of %d", len(k), math.MaxUint16)
	}
	return nil
}

// deleteRows executes a DELETE without columns.
func (m *modifyPlan) deleteRows(b *mutationBuilder, ranges []store.Range, ts int64) {
	if ranges == nil {
		b.deletePartition(ts)
		return
	}
	n := len(m.table.Clustering)
	for _, r := range ranges {
		if len(r.Start.Prefix) == n && len(r.End.Prefix) == n && catalog.CompareClustering(m.table.Clustering, r.Start.Prefix, r.End.Prefix) == 0 {
			row := b.row(r.Start.Prefix)
			row.Deleted = later(row.Deleted, ts)
			continue
		}
		b.deleteRange(r, ts)
	}
}

// buildPartition applies the operations to one partition: those on static columns once,
// the others to each row.
func (m *modifyPlan) buildPartition(x *expr.EvalCtx, b *mutationBuilder, ranges []store.Range, at stamp) error {
	if m.setsStatic {
		w := rowWriter{row: b.static(), at: at}
		if err := m.apply(x, &w, true); err != nil {
			return err
		}
	}
	if ranges == nil {
		// Without a clustering key in the statement there is a row only if the table
		// has none either.
		if len(m.table.Clustering) > 0 {
			return nil
		}
		ranges = []store.Range{{}}
	}
	if !m.setsRegular && m.kind != insertKind {
		return nil
	}
	for _, r := range ranges {
		w := rowWriter{row: b.row(r.Start.Prefix), at: at}
		if m.kind == insertKind {
			w.mark()
		}
		if err := m.apply(x, &w, false); err != nil {
			return err
		}
	}
	return nil
}

// rowKey never returns nil, which denotes the static row.
func rowKey(prefix [][]byte) [][]byte {
	if prefix == nil {
		return [][]byte{}
	}
	return prefix
}

func (m *modifyPlan) apply(x *expr.EvalCtx, w *rowWriter, static bool) error {
	for _, op := range m.ops {
		if (op.column.Kind == catalog.Static) != static {
			continue
		}
		if err := op.apply(w, x); err != nil {
			return err
		}
	}
	return nil
}

// partitionRows are rows of one partition, read in one scan.
type partitionRows struct {
	live   bool // anything was found
	static *store.Row
	rows   map[string]*store.Row // by CompositeKey of the clustering
}

// find returns a row, or the static row for nil; nil if it does not exist.
func (p *partitionRows) find(clustering [][]byte) *store.Row {
	if clustering == nil {
		return p.static
	}
	return p.rows[string(catalog.CompositeKey(clustering))]
}

// readPartition reads the static row and the rows of some ranges; nil ranges
// read all rows.
func (e *Engine) readPartition(t *catalog.Table, key []byte, ranges []store.Range) (*partitionRows, error) {
	it, err := e.store.Scan(store.Scan{Table: t, Key: key, Token: t.Token(key), Ranges: ranges})
	if err != nil {
		return nil, serverError("read", err)
	}
	defer it.Close()
	p := &partitionRows{rows: map[string]*store.Row{}}
	if it.NextPartition() {
		p.live = true
		p.static = it.Static().Clone()
		for it.NextRow() {
			r := it.Row().Clone()
			p.rows[string(catalog.CompositeKey(r.Clustering))] = r
		}
	}
	if err := it.Err(); err != nil {
		return nil, serverError("read", err)
	}
	return p, nil
}
