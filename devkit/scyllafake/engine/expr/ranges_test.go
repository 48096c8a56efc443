package expr

import (
	"math/rand/v2"
	"slices"
	"testing"

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
		c := catalog.CompareClustering(cols, row[:len(b.Prefix)], b.Prefix)
		return c > 0 || c == 0 && b.Inclusive
	}
	before := func(b store.Bound) bool {
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

func randomPrefix(rnd *rand.Rand) [][]byte {
	n := make([]int, 1+rnd.IntN(3))
	for i := range n {
		n[i] = rnd.IntN(4)
	}
	return ints(n...)
}

// A slice over several columns of one direction is just the rows whose values lie in it,
// in table order.
func TestSlice_Ranges(t *testing.T) {
	t.Parallel()
	rnd := seeds.Rand(t)
	for range 500 {
		desc := rnd.IntN(2) == 0
		cols := clusteringColumns(desc, desc, desc)
		s := slice{cols: cols}
		for range 1 + rnd.IntN(3) {
			s.add([]cql.Op{cql.OpGT, cql.OpGE, cql.OpLT, cql.OpLE}[rnd.IntN(4)], randomPrefix(rnd))
		}
		ranges := s.ranges([][][]byte{nil})
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
