package expr

import (
	"slices"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// JoinRanges makes range deletions disjoint and as few as possible: where they overlap
// the later one counts, and neighbours of one time become one.
func JoinRanges(cols []*catalog.Column, ranges []store.RangeDeletion) []store.RangeDeletion {
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
				if !d.Set || d.Timestamp < r.Timestamp {
					d = store.Deletion{Set: true, Timestamp: r.Timestamp}
				}
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
