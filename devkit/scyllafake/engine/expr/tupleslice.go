package expr

import (
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// tupleSlice is lo < (a, b, …) < hi in the order of the values, which is not
// the order of the rows where a column is DESC. Bounds may differ in length.
type tupleSlice struct {
	cols           []*catalog.Column
	lo, hi         [][]byte // nil is unbounded
	loOpen, hiOpen bool
}

// Add narrows the slice by one bound.
func (s *tupleSlice) Add(op cql.Op, vals [][]byte) {
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

func (s *tupleSlice) loEdge() edge { return edge{s.lo, s.loOpen} }
func (s *tupleSlice) hiEdge() edge { return edge{s.hi, !s.hiOpen} }

// compareEdges orders edges by value.
func (s *tupleSlice) compareEdges(a, b edge) int {
	return orderEdges(s.compare(a.prefix, b.prefix), a, b)
}

// compare orders tuples by value, up to the shorter length.
func (s *tupleSlice) compare(a, b [][]byte) int {
	for i := range min(len(a), len(b)) {
		if c := s.cols[i].Type.Compare(a[i], b[i]); c != 0 {
			return c
		}
	}
	return 0
}

func (s *tupleSlice) contains(t [][]byte) bool {
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

// ranges returns the rows of the slice in table order: one range at most, because its
// columns have the same order.
func (s *tupleSlice) ranges() []store.Range {
	if s.lo != nil && s.hi != nil && s.compareEdges(s.loEdge(), s.hiEdge()) >= 0 {
		return []store.Range{}
	}
	lo := store.Bound{Prefix: s.lo, Inclusive: !s.loOpen}
	hi := store.Bound{Prefix: s.hi, Inclusive: !s.hiOpen}
	if s.cols[0].Desc {
		lo, hi = hi, lo
	}
	return []store.Range{{Start: lo, End: hi}}
}

// edge is a position between clustering keys: before or after all keys with a prefix.
type edge struct {
	prefix [][]byte
	after  bool
}

// orderEdges orders edges; c is the order of the common part of their prefixes.
func orderEdges(c int, a, b edge) int {
	n := min(len(a.prefix), len(b.prefix))
	if c != 0 {
		return c
	}
	// The longer one is inside the range of the shorter prefix.
	switch {
	case len(a.prefix) > n:
		if b.after {
			return -1
		}
		return 1
	case len(b.prefix) > n:
		if a.after {
			return 1
		}
		return -1
	case a.after == b.after:
		return 0
	case a.after:
		return 1
	}
	return -1
}
