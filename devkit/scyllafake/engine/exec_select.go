package engine

import (
	"context"
	"math"
	"slices"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine/expr"
)

// maxPageBytes ends a page early, as ScyllaDB's result size limit does.
const maxPageBytes = 1 << 20

// cancelEvery is the number of rows between two checks of the context.
const cancelEvery = 256

// selection is one execution of a selectPlan.
type selection struct {
	q      *selectPlan
	x      *expr.EvalCtx
	params *Params
	// endsPages means that a page of a filtering read that read everything is the last.
	endsPages bool
	src       source
	view      expr.RowView
	// found is false when the restrictions exclude every row.
	found bool

	pageSize     uint64 // 0 is unpaged
	remaining    uint64 // of LIMIT
	perPartition uint64
	fetched      uint64 // rows returned of the current partition

	rows []byte
	n    int32
	read int64 // rows that were read, also the rows that a filter excluded
}

func (e *Engine) execSelect(ctx context.Context, q *selectPlan, x *expr.EvalCtx, params *Params) (*Result, error) {
	if err := e.checkRead(q.table, params.Consistency); err != nil {
		return nil, e.countError(q, err)
	}
	timed := e.arrive()
	s := &selection{q: q, x: x, params: params, endsPages: e.version.EndsFilteringPages()}
	res := &Result{Columns: q.result, Warnings: q.warnings}
	var err error
	if s.found, err = s.begin(e); err != nil {
		return nil, err
	}
	deadPage, err := e.beforeRead(ctx, s)
	if err != nil {
		return nil, err
	}
	defer s.src.close()
	switch {
	case q.count:
		err = s.count(ctx)
	case !s.found:
	case deadPage && s.pageSize > 0 && params.PagingState == nil:
		res.PagingState = (&pageState{StoreID: q.table.StoreID, Begin: true, Remaining: s.remaining}).encode()
	default:
		res.PagingState, err = s.page(ctx)
	}
	if err == nil && s.found && (e.costs != nil || timed != nil) {
		var read int64
		if read, err = s.rowsRead(res.PagingState != nil && !deadPage); err == nil {
			e.costs.count(s, read)
			if err = s.src.close(); err == nil {
				err = timed.read(ctx, s, read)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	res.Rows, res.RowCount = s.rows, s.n
	if s.src.byKey && len(s.src.keys) == 1 {
		res.Table, res.Key = q.table, s.src.keys[0]
	}
	return res, s.src.close()
}

// begin evaluates the restrictions and limits. found is false when no row can match.
func (s *selection) begin(e *Engine) (found bool, err error) {
	q, x := s.q, s.x
	if s.remaining, err = limit(x, q.limit); err != nil {
		return false, err
	}
	if s.perPartition, err = limit(x, q.perPartition); err != nil {
		return false, err
	}
	s.view = expr.RowView{Table: q.table, Now: x.Now.Unix()}
	s.src = source{store: e.store, table: q.table, reversed: q.reversed, onlyPartitions: q.distinct}
	if q.rest.NamesPartitions() {
		var unset bool
		s.src.byKey = true
		if s.src.keys, unset, err = q.rest.PartitionKeys(x); err != nil {
			return false, err
		}
		// No stored key is empty, but a query may name an empty one.
		s.src.keys = slices.DeleteFunc(s.src.keys, func(k []byte) bool { return len(k) == 0 })
		if unset || len(s.src.keys) == 0 {
			return false, nil
		}
	} else {
		var empty bool
		if s.src.lo, s.src.hi, empty, err = q.rest.TokenRange(x); err != nil || empty {
			return false, err
		}
	}
	ranges, unset, err := q.rest.RowRanges(x)
	if err != nil || unset || ranges != nil && len(ranges) == 0 {
		return false, err
	}
	s.src.ranges = ranges
	if err := s.checkSerial(e.version); err != nil {
		return false, err
	}
	return s.resume()
}

// limit evaluates LIMIT; without one it returns the largest number.
func limit(x *expr.EvalCtx, t expr.Term) (uint64, error) {
	if t == nil {
		return math.MaxUint64, nil
	}
	v, err := t.Eval(x)
	if err != nil {
		return 0, err
	}
	if v.Unset {
		return math.MaxUint64, nil
	}
	n, ok := cqltype.TInt.DecodeInt(v.Bytes)
	switch {
	case !ok:
		return 0, cqlerr.Invalidf("Invalid null value of limit")
	case n <= 0:
		return 0, cqlerr.Invalidf("LIMIT must be strictly positive")
	}
	return uint64(n), nil
}

// resume sets the page size and continues where the last page ended.
func (s *selection) resume() (bool, error) {
	p := s.params
	if s.q.count || p.PageSize <= 0 {
		return true, nil
	}
	if s.mayNeedPaging(uint64(p.PageSize)) {
		s.pageSize = uint64(p.PageSize)
	}
	if p.PagingState == nil {
		return true, nil
	}
	st, same, err := decodePageState(p.PagingState, s.q.table)
	if err != nil || !same || st.Remaining == 0 {
		return false, err
	}
	if !st.Begin {
		s.src.after = &st.Pos
	}
	s.fetched = st.Fetched
	s.remaining = min(s.remaining, st.Remaining)
	return true, nil
}

// mayNeedPaging returns false when the statement names so few rows one by one that they
// always fit a page; such a read never has a next page.
func (s *selection) mayNeedPaging(pageSize uint64) bool {
	if s.filtering() || !s.src.byKey {
		return true
	}
	perKey := 1
	if n := len(s.q.table.Clustering); n > 0 && !s.q.distinct {
		if s.src.ranges == nil {
			return true
		}
		for _, r := range s.src.ranges {
			if len(r.Start.Prefix) != n || len(r.End.Prefix) != n || catalog.CompareClustering(s.q.table.Clustering, r.Start.Prefix, r.End.Prefix) != 0 {
				return true
			}
		}
		perKey = len(s.src.ranges)
	}
	return uint64(len(s.src.keys))*uint64(perKey) > pageSize
}

// filtering reports whether rows that were read may be filtered out. ScyllaDB then
// counts the rows of a page as it reads them.
func (s *selection) filtering() bool { return s.q.perPartition != nil || s.q.rest.NeedsFiltering() }

// page reads up to one page and returns the state for the next, nil if this
// was the last.
func (s *selection) page(ctx context.Context) ([]byte, error) {
	filtering := s.filtering()
	s.src.remember = filtering
	var read, dropped uint64
	for {
		ok, err := s.step(ctx, read)
		if err != nil {
			return nil, err
		}
		if !ok {
			// A node of an earlier release cannot know that only filtered rows follow.
			if s.pageSize > 0 && filtering && dropped > 0 && !s.endsPages {
				return s.state(), nil
			}
			return nil, nil
		}
		read++
		keep, err := s.keeps()
		if err != nil {
			return nil, err
		}
		if keep {
			if err := s.emit(); err != nil {
				return nil, err
			}
			s.fetched++
			if s.remaining--; s.remaining == 0 {
				return nil, nil
			}
		} else {
			dropped++
		}
		if s.pageSize > 0 && (read >= s.pageSize || len(s.rows) >= maxPageBytes) {
			return s.state(), nil
		}
	}
}

// step moves to the next row. n counts the rows so far.
func (s *selection) step(ctx context.Context, n uint64) (bool, error) {
	if n%cancelEvery == 0 {
		if err := ctx.Err(); err != nil {
			return false, err
		}
	}
	ok, first, err := s.src.next(&s.view)
	if !ok || err != nil {
		return false, err
	}
	s.read++
	if first {
		if !s.src.resumed {
			s.fetched = 0
		}
	}
	return true, nil
}

// keeps reports whether the row passes the filters and PER PARTITION LIMIT.
func (s *selection) keeps() (bool, error) {
	if s.fetched >= s.perPartition {
		return false, nil
	}
	for _, f := range s.q.rest.Filters {
		ok, err := f.Holds(s.x, &s.view)
		if !ok || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (s *selection) state() []byte {
	st := pageState{StoreID: s.q.table.StoreID, Pos: s.src.position(&s.view), Remaining: s.remaining, Fetched: s.fetched}
	return st.encode()
}

// emit appends the current row to the result.
func (s *selection) emit() error {
	// append would grow a large buffer by a quarter at a time and copy a page several
	// times.
	if len(s.rows) > 0 && cap(s.rows)-len(s.rows) < 2*len(s.rows)/int(s.n) {
		s.rows = slices.Grow(s.rows, len(s.rows))
	}
	for i := range s.q.selected {
		if c := s.q.selected[i].Col; c != nil {
			s.rows = s.view.AppendColumn(s.rows, c)
			continue
		}
		v, err := s.q.selected[i].Value(s.x, &s.view)
		if err != nil {
			return err
		}
		s.rows = cqltype.AppendElement(s.rows, v)
	}
	s.n++
	return nil
}

// count reads all rows and emits their number.
func (s *selection) count(ctx context.Context) error {
	var n int64
	s.perPartition = math.MaxUint64 // it limits the results, of which there is one
	for i := uint64(0); s.found; i++ {
		ok, err := s.step(ctx, i)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		keep, err := s.keeps()
		if err != nil {
			return err
		}
		if keep {
			n++
		}
	}
	s.rows, s.n = cqltype.AppendElement(s.rows, cqltype.EncodeInt64(n)), 1
	return nil
}
