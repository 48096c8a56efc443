package cdc

import (
	"slices"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// position is a position between rows: just before (-1) or just after (+1) all rows
// that begin with prefix.
type position struct {
	prefix [][]byte
	weight int
}

func startOf(b store.Bound) position {
	if b.Inclusive {
		return position{b.Prefix, -1}
	}
	return position{b.Prefix, +1}
}

func endOf(b store.Bound) position {
	if b.Inclusive {
		return position{b.Prefix, +1}
	}
	return position{b.Prefix, -1}
}

func (p position) asStart() store.Bound {
	return store.Bound{Prefix: p.prefix, Inclusive: p.weight < 0}
}

func (p position) asEnd() store.Bound { return store.Bound{Prefix: p.prefix, Inclusive: p.weight > 0} }

func comparePositions(t *catalog.Table, a, b position) int {
	for i := range min(len(a.prefix), len(b.prefix)) {
		if c := compareColumn(t, i, a.prefix[i], b.prefix[i]); c != 0 {
			return c
		}
	}
	switch {
	case len(a.prefix) < len(b.prefix):
		return a.weight
	case len(a.prefix) > len(b.prefix):
		return -b.weight
	}
	return a.weight - b.weight
}

// sortedRanges returns range deletions in the order of a partition: in clustering
// order, not overlapping. Where some overlap the latest counts, and adjacent ones of
// one timestamp are joined.
func sortedRanges(t *catalog.Table, ranges []store.RangeDeletion) []store.RangeDeletion {
	if len(ranges) == 0 {
		return nil
	}
	type span struct {
		start, end position
		ts         int64
	}
	var spans []span
	var places []position
	for _, r := range ranges {
		s := span{startOf(r.Start), endOf(r.End), r.Timestamp}
		if comparePositions(t, s.start, s.end) < 0 {
			spans = append(spans, s)
			places = append(places, s.start, s.end)
		}
	}
	compare := func(a, b position) int { return comparePositions(t, a, b) }
	slices.SortFunc(places, compare)
	places = slices.CompactFunc(places, func(a, b position) bool { return compare(a, b) == 0 })
	slices.SortFunc(spans, func(a, b span) int { return compare(a.start, b.start) })

	var out []span
	var open []span // ranges that begin at or before the position, and end after it
	for i := 0; i+1 < len(places); i++ {
		here, next := places[i], places[i+1]
		for len(spans) > 0 && compare(spans[0].start, here) <= 0 {
			open, spans = append(open, spans[0]), spans[1:]
		}
		open = slices.DeleteFunc(open, func(s span) bool { return compare(s.end, here) <= 0 })
		if len(open) == 0 {
			continue
		}
		ts := slices.MaxFunc(open, func(a, b span) int {
			if a.ts < b.ts {
				return -1
			}
			return 1
		}).ts
		if n := len(out); n > 0 && out[n-1].ts == ts && compare(out[n-1].end, here) == 0 {
			out[n-1].end = next
		} else {
			out = append(out, span{here, next, ts})
		}
	}
	result := make([]store.RangeDeletion, len(out))
	for i, s := range out {
		result[i] = store.RangeDeletion{
			Range:    store.Range{Start: s.start.asStart(), End: s.end.asEnd()},
			Deletion: store.Deletion{Set: true, Timestamp: s.ts},
		}
	}
	return result
}
