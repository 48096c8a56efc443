package store

import (
	"bytes"
	"slices"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
)

// JoinRanges makes range deletions disjoint, sorted and as few as possible: where they
// overlap the later one counts, and neighbours of one time become one. Ranges that do not
// fit the table are returned unchanged; Apply refuses them.
func JoinRanges(t *catalog.Table, ranges []RangeDeletion) []RangeDeletion {
	// An edge between rows is a bound as the start of a range, with its place in the order
	// of keys. After one value and before the next one are two edges with one key.
	type edge struct {
		key   []byte
		start Bound
	}
	compare := func(a, b edge) int {
		if c := bytes.Compare(a.key, b.key); c != 0 || a.start.Inclusive == b.start.Inclusive {
			return c
		}
		return map[bool]int{true: 1, false: -1}[a.start.Inclusive]
	}
	var edges []edge
	from, to := make([]edge, len(ranges)), make([]edge, len(ranges))
	for i, r := range ranges {
		iv, err := toInterval(t, r.Range)
		if err != nil {
			return ranges
		}
		from[i], to[i] = edge{iv.lo, r.Start}, edge{iv.hi, opposite(r.End)}
		edges = append(edges, from[i], to[i])
	}
	slices.SortFunc(edges, compare)
	edges = slices.CompactFunc(edges, func(a, b edge) bool { return compare(a, b) == 0 })
	var out []RangeDeletion
	last := -1 // the edge at the end of the last range of out
	for i := 1; i < len(edges); i++ {
		var d Deletion
		for j, r := range ranges {
			covers := compare(from[j], edges[i-1]) <= 0 && compare(edges[i], to[j]) <= 0
			if covers && (!d.Set || d.Timestamp < r.Timestamp) {
				d = Deletion{Set: true, Timestamp: r.Timestamp}
			}
		}
		if !d.Set {
			continue
		}
		end := opposite(edges[i].start)
		if n := len(out) - 1; n >= 0 && out[n].Timestamp == d.Timestamp && last == i-1 {
			out[n].End = end
		} else {
			out = append(out, RangeDeletion{Range{edges[i-1].start, end}, d})
		}
		last = i
	}
	return out
}

// opposite returns the bound at the same place on the other side: of a start the end of a
// range before it, and the reverse.
func opposite(b Bound) Bound { return Bound{b.Prefix, !b.Inclusive} }
