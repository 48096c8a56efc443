package expr

import (
	"cmp"
	"slices"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// RowRanges evaluates the clustering restrictions to ranges in table order that do not
// overlap; nil means all rows, an empty slice none. unset means that a value was unset.
func (r *Restrictions) RowRanges(x *EvalCtx) (ranges []store.Range, unset bool, err error) {
	prefixes := [][][]byte{nil}
	if len(r.Multi) > 0 {
		s, unset, err := evalSlice(x, r.table.Clustering, r.Multi)
		return s.ranges(prefixes), unset, err
	}
	if len(r.Rows) == 0 {
		return nil, false, nil
	}
	// A product of values, and at most one slice at the end.
	for i, list := range r.Rows {
		col := r.table.Clustering[i]
		discrete, sliced := splitSlices(list)
		s, unset, err := evalSlice(x, r.table.Clustering[i:], sliced)
		if err != nil || unset {
			return nil, unset, err
		}
		if len(discrete) == 0 {
			return s.ranges(prefixes), false, nil
		}
		vals, unset, err := intersect(x, col.Type, discrete)
		if err != nil || unset {
			return nil, unset, err
		}
		vals = slices.DeleteFunc(vals, func(v []byte) bool { return !s.contains([][]byte{v}) })
		if col.Desc {
			slices.Reverse(vals)
		}
		if err := checkProduct("clustering-key", len(prefixes)*len(vals)); err != nil {
			return nil, false, err
		}
		next := make([][][]byte, 0, len(prefixes)*len(vals))
		for _, p := range prefixes {
			for _, v := range vals {
				next = append(next, append(slices.Clip(p), v))
			}
		}
		prefixes = next
	}
	ranges = make([]store.Range, len(prefixes))
	for i, p := range prefixes {
		b := store.Bound{Prefix: p, Inclusive: true}
		ranges[i] = store.Range{Start: b, End: b}
	}
	return ranges, false, nil
}

func splitSlices(list []*Relation) (discrete, slice []*Relation) {
	if len(list) == 1 {
		if isSlice(list) {
			return nil, list
		}
		return list, nil
	}
	for _, r := range list {
		if r.Op == cql.OpEQ || r.Op == cql.OpIn {
			discrete = append(discrete, r)
		} else {
			slice = append(slice, r)
		}
	}
	return discrete, slice
}

// slice is lo < (a, b, …) < hi in the order of the values, which is not the order of the
// rows where the columns are DESC. Bounds may differ in length.
type slice struct {
	cols           []*catalog.Column
	lo, hi         [][]byte // nil is unbounded
	loOpen, hiOpen bool
	none           bool // a bound is null
}

// evalSlice evaluates relations that begin with the first of the columns.
func evalSlice(x *EvalCtx, cols []*catalog.Column, list []*Relation) (s slice, unset bool, err error) {
	s.cols = cols
	for _, r := range list {
		vals, unset, err := r.evaluate(x)
		if err != nil || unset {
			return s, unset, err
		}
		if slices.ContainsFunc(vals, isNull) {
			if err := x.nullKey(); err != nil && !r.multi {
				return s, false, err
			}
			s.none = true
			continue
		}
		s.add(r.Op, vals)
	}
	return s, false, nil
}

// add narrows the slice by one bound.
func (s *slice) add(op cql.Op, vals [][]byte) {
	open := op == cql.OpGT || op == cql.OpLT
	if op == cql.OpGT || op == cql.OpGE {
		if s.lo == nil || s.compareEdges(edge{vals, open}, s.loEdge()) > 0 {
			s.lo, s.loOpen = vals, open
		}
		return
	}
	if s.hi == nil || s.compareEdges(edge{vals, !open}, s.hiEdge()) < 0 {
		s.hi, s.hiOpen = vals, open
	}
}

func (s *slice) loEdge() edge { return edge{s.lo, s.loOpen} }
func (s *slice) hiEdge() edge { return edge{s.hi, !s.hiOpen} }

// compareEdges orders edges by value.
func (s *slice) compareEdges(a, b edge) int {
	n := min(len(a.prefix), len(b.prefix))
	side := func(e edge) int {
		switch {
		case len(e.prefix) > n:
			return 0 // inside the range of the shorter prefix
		case e.after:
			return 1
		}
		return -1
	}
	return cmp.Or(s.compare(a.prefix, b.prefix), cmp.Compare(side(a), side(b)))
}

// compare orders tuples by value, up to the shorter length.
func (s *slice) compare(a, b [][]byte) int {
	for i := range min(len(a), len(b)) {
		if c := s.cols[i].Type.Compare(a[i], b[i]); c != 0 {
			return c
		}
	}
	return 0
}

func (s *slice) contains(t [][]byte) bool {
	if s.none {
		return false
	}
	if s.lo != nil {
		if c := s.compare(t, s.lo); c < 0 || c == 0 && s.loOpen {
			return false
		}
	}
	if s.hi != nil {
		if c := s.compare(t, s.hi); c > 0 || c == 0 && s.hiOpen {
			return false
		}
	}
	return true
}

// ranges returns the rows of the slice after each prefix, in table order: at most one range
// a prefix, because the columns have the same order.
func (s *slice) ranges(prefixes [][][]byte) []store.Range {
	if s.none || s.lo != nil && s.hi != nil && s.compareEdges(s.loEdge(), s.hiEdge()) >= 0 {
		return []store.Range{}
	}
	out := make([]store.Range, len(prefixes))
	for i, p := range prefixes {
		lo := store.Bound{Prefix: append(slices.Clip(p), s.lo...), Inclusive: !s.loOpen}
		hi := store.Bound{Prefix: append(slices.Clip(p), s.hi...), Inclusive: !s.hiOpen}
		if s.cols[0].Desc {
			lo, hi = hi, lo
		}
		out[i] = store.Range{Start: lo, End: hi}
	}
	return out
}

// edge is a position between clustering keys: before or after all keys with a prefix.
type edge struct {
	prefix [][]byte
	after  bool
}
