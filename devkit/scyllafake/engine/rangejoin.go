package engine

import (
	"slices"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// edge is a position between clustering keys: before or after all keys with a prefix.
type edge struct {
	prefix [][]byte
	after  bool
}

func startEdge(b store.Bound) edge { return edge{b.Prefix, !b.Inclusive && len(b.Prefix) > 0} }
func endEdge(b store.Bound) edge   { return edge{b.Prefix, b.Inclusive || len(b.Prefix) == 0} }

func (e edge) start() store.Bound { return store.Bound{Prefix: e.prefix, Inclusive: !e.after} }
func (e edge) end() store.Bound   { return store.Bound{Prefix: e.prefix, Inclusive: e.after} }

// compareEdges orders edges as the table orders its rows.
func compareEdges(cols []*catalog.Column, a, b edge) int {
	n := min(len(a.prefix), len(b.prefix))
	return orderEdges(comparePrefix(cols, a.prefix[:n], b.prefix[:n]), a, b)
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

// joinRanges makes range deletions disjoint and as few as possible: where they overlap
// the later one counts, and neighbours of one time become one.
func joinRanges(cols []*catalog.Column, ranges []store.RangeDeletion) []store.RangeDeletion {
	cmp := func(a, b edge) int { return compareEdges(cols, a, b) }
	var edges []edge
	for _, r := range ranges {
		edges = append(edges, startEdge(r.Start), endEdge(r.End))
	}
	slices.SortFunc(edges, cmp)
	edges = slices.CompactFunc(edges, func(a, b edge) bool { return cmp(a, b) == 0 })
	var out []store.RangeDeletion
	for i := 1; i < len(edges); i++ {
		from, to := edges[i-1], edges[i]
		var d store.Deletion
		for _, r := range ranges {
			if cmp(startEdge(r.Start), from) <= 0 && cmp(to, endEdge(r.End)) <= 0 {
				d = later(d, r.Timestamp)
			}
		}
		if !d.Set {
			continue
		}
		if n := len(out) - 1; n >= 0 && out[n].Timestamp == d.Timestamp && cmp(endEdge(out[n].End), from) == 0 {
			out[n].End = to.end()
			continue
		}
		out = append(out, store.RangeDeletion{Range: store.Range{Start: from.start(), End: to.end()}, Deletion: d})
	}
	return out
}
