package store

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
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

// covers reports whether a range has the row, in the words of Range.
func covers(cols []*catalog.Column, r Range, row [][]byte) bool {
	after := func(b Bound) bool { // row is not before b
		c := catalog.CompareClustering(cols, row[:len(b.Prefix)], b.Prefix)
		return c > 0 || c == 0 && b.Inclusive
	}
	before := func(b Bound) bool {
		c := catalog.CompareClustering(cols, row[:len(b.Prefix)], b.Prefix)
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
	slices.SortFunc(out, func(a, b [][]byte) int { return catalog.CompareClustering(cols, a, b) })
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

// Joined range deletions are disjoint, in order, and delete the same rows as the single
// ones, with the same times.
func TestJoinRanges(t *testing.T) {
	t.Parallel()
	rnd := seeds.Rand(t)
	bound := func() Bound {
		if rnd.IntN(5) == 0 {
			return Bound{Inclusive: true}
		}
		return Bound{Prefix: randomPrefix(rnd), Inclusive: rnd.IntN(2) == 0}
	}
	deletedAt := func(cols []*catalog.Column, ranges []RangeDeletion, row [][]byte) (ts int64, n int) {
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
		table := &catalog.Table{Clustering: cols}
		var ranges []RangeDeletion
		for range 1 + rnd.IntN(4) {
			r := Range{Start: bound(), End: bound()}
			if iv, err := toInterval(table, r); err == nil && !iv.empty() {
				ranges = append(ranges, RangeDeletion{Range: r, Deletion: Deletion{Set: true, Timestamp: int64(1 + rnd.IntN(2))}})
			}
		}
		joined := JoinRanges(table, ranges)
		for _, row := range allRows(cols) {
			want, _ := deletedAt(cols, ranges, row)
			got, n := deletedAt(cols, joined, row)
			if got != want || n > 1 {
				t.Fatalf("%+v joined to %+v: row %v deleted at %d by %d ranges, want %d", ranges, joined, row, got, n, want)
			}
		}
		for i := 1; i < len(joined); i++ {
			before, _ := toInterval(table, joined[i-1].Range)
			after, _ := toInterval(table, joined[i].Range)
			c := bytes.Compare(before.hi, after.lo)
			same := reflect.DeepEqual(opposite(joined[i-1].End), joined[i].Start)
			if c > 0 || same && joined[i-1].Timestamp == joined[i].Timestamp {
				t.Fatalf("%+v: ranges %d and %d overlap or should be one", joined, i-1, i)
			}
		}
	}
}
