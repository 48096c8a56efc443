package cdc

import (
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// Every key must be deleted at the latest time of the ranges that hold it,
// whatever they are, and the result be in order, apart, and as coarse as it can be.
func TestSortedRanges_AgainstEveryKey(t *testing.T) {
	t.Parallel()
	rnd := seeds.Rand(t)
	base := table(t, catalog.CDC{}, "p int key", "a int clustering", "b int desc")
	const n = 4
	bound := func() store.Bound {
		b := store.Bound{Inclusive: rnd.IntN(2) == 0}
		for range rnd.IntN(3) {
			b.Prefix = append(b.Prefix, cqltype.EncodeInt32(int32(rnd.IntN(n))))
		}
		if len(b.Prefix) == 0 {
			b.Inclusive = true
		}
		return b
	}
	holds := func(r store.RangeDeletion, key [][]byte) bool {
		before, after := position{key, -1}, position{key, +1}
		return comparePositions(base, startOf(r.Start), before) <= 0 && comparePositions(base, after, endOf(r.End)) <= 0
	}
	latest := func(ranges []store.RangeDeletion, key [][]byte) (ts int64, hits int) {
		for _, r := range ranges {
			if holds(r, key) {
				ts = max(ts, r.Timestamp)
				hits++
			}
		}
		return ts, hits
	}
	for range 500 {
		var in []store.RangeDeletion
		for range 1 + rnd.IntN(5) {
			in = append(in, store.RangeDeletion{
				Range:    store.Range{Start: bound(), End: bound()},
				Deletion: store.Deletion{Set: true, Timestamp: 1 + rnd.Int64N(2)},
			})
		}
		out := sortedRanges(base, in)
		for a := range int32(n) {
			for b := range int32(n) {
				key := [][]byte{cqltype.EncodeInt32(a), cqltype.EncodeInt32(b)}
				want, _ := latest(in, key)
				got, hits := latest(out, key)
				if got != want || hits > 1 {
					t.Fatalf("row (%d, %d) is deleted at %d by %d ranges, want %d\nin  %+v\nout %+v", a, b, got, hits, want, in, out)
				}
			}
		}
		for i := 1; i < len(out); i++ {
			c := comparePositions(base, endOf(out[i-1].End), startOf(out[i].Start))
			if c > 0 || c == 0 && out[i-1].Timestamp == out[i].Timestamp {
				t.Fatalf("ranges %d and %d are out of order, or one\nin  %+v\nout %+v", i-1, i, in, out)
			}
		}
	}
}
