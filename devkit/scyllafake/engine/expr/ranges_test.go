package expr

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

func clusteringColumns(desc ...bool) []*catalog.Column {
	out := make([]*catalog.Column, len(desc))
	for i, d := range desc {
		out[i] = &catalog.Column{Name: string(rune('a' + i)), Type: cqltype.TInt, Kind: catalog.Clustering, Position: i, Desc: d}
	}
	return out
}

// ints returns the serialised ints of a clustering prefix.
func ints(n ...int) [][]byte {
	out := make([][]byte, len(n))
	for i, v := range n {
		out[i] = cqltype.EncodeInt32(int32(v))
	}
	return out
}

// covers reports whether a range has the row, in the words of store.Range.
func covers(cols []*catalog.Column, r store.Range, row [][]byte) bool {
	after := func(b store.Bound) bool { // row is not before b
		c := ComparePrefix(cols, row[:len(b.Prefix)], b.Prefix)
		return c > 0 || c == 0 && b.Inclusive
	}
	before := func(b store.Bound) bool {
		c := ComparePrefix(cols, row[:len(b.Prefix)], b.Prefix)
		return c < 0 || c == 0 && b.Inclusive
	}
	return after(r.Start) && before(r.End)
}

// allRows returns the rows of a small table with three clustering columns.
func allRows(cols []*catalog.Column) [][][]byte {
	var out [][][]byte
	for a := range 4 {
		for b := range 4 {
			for c := range 4 {
				out = append(out, ints(a, b, c))
			}
		}
	}
	slices.SortFunc(out, func(a, b [][]byte) int { return ComparePrefix(cols, a, b) })
	return out
}

func randomDirections(rnd *rand.Rand) []*catalog.Column {
	return clusteringColumns(rnd.IntN(2) == 0, rnd.IntN(2) == 0, rnd.IntN(2) == 0)
}

func randomPrefix(rnd *rand.Rand) [][]byte {
	n := make([]int, 1+rnd.IntN(3))
	for i := range n {
		n[i] = rnd.IntN(4)
	}
	return ints(n...)
}

// A slice over several columns of one direction is just the rows whose values lie in it,
// in table order.
func TestTupleSlice_Ranges(t *testing.T) {
	t.Parallel()
	rnd := seeds.Rand(t)
	for range 500 {
		desc := rnd.IntN(2) == 0
		cols := clusteringColumns(desc, desc, desc)
		s := tupleSlice{cols: cols}
		for range 1 + rnd.IntN(3) {
			s.Add([]cql.Op{cql.OpGT, cql.OpGE, cql.OpLT, cql.OpLE}[rnd.IntN(4)], randomPrefix(rnd))
		}
		ranges := s.ranges()
		at := 0
		for _, row := range allRows(cols) {
			var in []int
			for i, r := range ranges {
				if covers(cols, r, row) {
					in = append(in, i)
				}
			}
			if want := s.contains(row); want != (len(in) == 1) || len(in) > 1 {
				t.Fatalf("%+v: row %v is in ranges %v, want %v", s, row, in, want)
			}
			if len(in) == 1 {
				if in[0] < at {
					t.Fatalf("%+v: ranges are not in table order", s)
				}
				at = in[0]
			}
		}
	}
}

// Joined range deletions are disjoint, in order, and delete the same rows as the single
// ones, with the same times.
func TestJoinRanges(t *testing.T) {
	t.Parallel()
	rnd := seeds.Rand(t)
	bound := func() store.Bound {
		if rnd.IntN(5) == 0 {
			return store.Bound{Inclusive: true}
		}
		return store.Bound{Prefix: randomPrefix(rnd), Inclusive: rnd.IntN(2) == 0}
	}
	deletedAt := func(cols []*catalog.Column, ranges []store.RangeDeletion, row [][]byte) (ts int64, n int) {
		for _, r := range ranges {
			if covers(cols, r.Range, row) {
				ts = max(ts, r.Timestamp)
				n++
			}
		}
		return ts, n
	}
	for range 500 {
		cols := randomDirections(rnd)
		var ranges []store.RangeDeletion
		for range 1 + rnd.IntN(4) {
			r := store.Range{Start: bound(), End: bound()}
			if compareEdges(cols, startEdge(r.Start), endEdge(r.End)) < 0 {
				ranges = append(ranges, store.RangeDeletion{Range: r, Deletion: store.Deletion{Set: true, Timestamp: int64(1 + rnd.IntN(2))}})
			}
		}
		joined := JoinRanges(cols, ranges)
		for _, row := range allRows(cols) {
			want, _ := deletedAt(cols, ranges, row)
			got, n := deletedAt(cols, joined, row)
			if got != want || n > 1 {
				t.Fatalf("%+v joined to %+v: row %v deleted at %d by %d ranges, want %d", ranges, joined, row, got, n, want)
			}
		}
		for i := 1; i < len(joined); i++ {
			c := compareEdges(cols, endEdge(joined[i-1].End), startEdge(joined[i].Start))
			if c > 0 || c == 0 && joined[i-1].Timestamp == joined[i].Timestamp {
				t.Fatalf("%+v: ranges %d and %d overlap or should be one", joined, i-1, i)
			}
		}
	}
}

// testClock is a clock that stands still.
type testClock struct{ at time.Time }

func (c *testClock) Now() time.Time { return c.at }

func TestClock_ListKeys(t *testing.T) {
	t.Parallel()
	c := NewClock(&testClock{time.UnixMicro(1_795_236_982_000_000)})
	var list [][16]byte
	ordered := func() bool {
		return slices.IsSortedFunc(list, func(a, b [16]byte) int { return cqltype.TTimeUUID.Compare(a[:], b[:]) })
	}
	list = c.AppendKeys(3)
	list = append(list, c.AppendKeys(maxListSeq+10)...)
	list = append(c.PrependKeys(3), list...)
	list = append(c.PrependKeys(maxListSeq+10), list...)
	list = append(list, c.AppendKeys(1)...)
	if !ordered() {
		t.Error("list keys are not in list order")
	}
	for _, k := range list {
		if err := cqltype.TTimeUUID.Validate(k[:]); err != nil {
			t.Fatal(err)
		}
	}
}

func TestClock_NeverRepeats(t *testing.T) {
	t.Parallel()
	wall := &testClock{time.UnixMicro(1_795_236_982_000_000)}
	c := NewClock(wall)
	seen := map[[16]byte]bool{}
	last := int64(0)
	for i := range 100 {
		if i == 50 {
			wall.at = wall.at.Add(-time.Hour)
		}
		u := c.timeUUID()
		if seen[u] {
			t.Fatalf("uuid %x repeats", u)
		}
		seen[u] = true
		ts := c.Micros()
		if ts <= last {
			t.Fatalf("timestamp %d after %d", ts, last)
		}
		last = ts
	}
}
