package store

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
)

// Few values for everything, so that writes meet, tie and cover each other.
var (
	genKey       = rapid.SampledFrom([]string{"a", "b", "b\x00"})
	genTimestamp = rapid.Int64Range(-2, 6)
	genSmall     = rapid.IntRange(0, 2)

	genDeletion = rapid.Custom(func(t *rapid.T) Deletion { return deletion(genTimestamp.Draw(t, "ts")) })

	genCell = rapid.Custom(func(t *rapid.T) *Cell {
		ts := genTimestamp.Draw(t, "ts")
		value := rapid.SampledFrom([]string{"", "a", "b", "\xff"}).Draw(t, "value")
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			return dead(ts)
		case 1:
			return ttl(ts, value, rapid.Int32Range(1, 3).Draw(t, "ttl"), rapid.Int64Range(995, 1060).Draw(t, "expiry"))
		}
		return live(ts, value)
	})

	genColumns = rapid.Custom(func(t *rapid.T) []ColumnData {
		var out []ColumnData
		for range rapid.IntRange(0, 3).Draw(t, "columns") {
			if rapid.Bool().Draw(t, "atomic") {
				out = append(out, columnData(rapid.SampledFrom([]int32{colA, colB}).Draw(t, "id"), genCell.Draw(t, "cell")))
				continue
			}
			d := ColumnData{ID: colSet}
			if rapid.Bool().Draw(t, "deleted") {
				d.Deleted = genDeletion.Draw(t, "deletion")
			}
			for range rapid.IntRange(0, 3).Draw(t, "elements") {
				d.Elements = append(d.Elements, element(rapid.IntRange(-1, 1).Draw(t, "path"), genCell.Draw(t, "element")))
			}
			out = append(out, d)
		}
		return out
	})

	genRow = rapid.Custom(func(t *rapid.T) Row {
		r := Row{Clustering: ck(genSmall.Draw(t, "c1"), genSmall.Draw(t, "c2")), Columns: genColumns.Draw(t, "columns")}
		if rapid.IntRange(0, 3).Draw(t, "marked") == 0 {
			r.Marker = genCell.Draw(t, "marker")
			r.Marker.Dead, r.Marker.Value = false, nil
		}
		if rapid.IntRange(0, 5).Draw(t, "deleted") == 0 {
			r.Deleted = genDeletion.Draw(t, "deletion")
		}
		return r
	})

	genBound = rapid.Custom(func(t *rapid.T) Bound {
		return Bound{
			Prefix:    ck(genSmall.Draw(t, "c1"), genSmall.Draw(t, "c2"))[:genSmall.Draw(t, "length")],
			Inclusive: rapid.Bool().Draw(t, "inclusive"),
		}
	})

	genRange = rapid.Custom(func(t *rapid.T) Range {
		return Range{genBound.Draw(t, "start"), genBound.Draw(t, "end")}
	})
)

func genMutation(tbl *catalog.Table) *rapid.Generator[*Mutation] {
	return rapid.Custom(func(t *rapid.T) *Mutation {
		m := partition(tbl, genKey.Draw(t, "key"))
		m.Rows = rapid.SliceOfN(genRow, 0, 3).Draw(t, "rows")
		if rapid.IntRange(0, 5).Draw(t, "deleted") == 0 {
			m.Deleted = genDeletion.Draw(t, "deletion")
		}
		if rapid.IntRange(0, 3).Draw(t, "static") == 0 {
			m.Static = &Row{Columns: []ColumnData{columnData(colS, genCell.Draw(t, "cell"))}}
		}
		if rapid.IntRange(0, 3).Draw(t, "ranged") == 0 {
			for range rapid.IntRange(1, 3).Draw(t, "ranges") {
				m.Ranges = append(m.Ranges, RangeDeletion{genRange.Draw(t, "range"), genDeletion.Draw(t, "deletion")})
			}
		}
		return m
	})
}

// reopenable is a store on a file system in memory that can be closed and opened again,
// or lose writes that are not in its log.
type reopenable struct {
	*Store
	fs    *vfs.MemFS
	clock *clock
}

func newReopenable(t *rapid.T) *reopenable {
	r := &reopenable{fs: vfs.NewMem(), clock: newClock()}
	r.open(t)
	return r
}

func (r *reopenable) open(t *rapid.T) {
	s, err := open(Options{Clock: r.clock}, r.fs, "db", true)
	if err != nil {
		t.Fatalf("open() error = %v", err)
	}
	r.Store = s
}

func (r *reopenable) close(t *rapid.T) {
	if err := r.Close(); err != nil {
		t.Fatalf("Close() error = %v", err)
	}
}

func (r *reopenable) dump(t *rapid.T, tbl *catalog.Table, ranges []Range, reverse bool) string {
	sc := all(tbl)
	sc.Ranges, sc.Reverse = ranges, reverse
	return dump(t, r.Store, sc)
}

// Reads agree with a plain model after any writes in any order and grouping, and after
// any concurrent work of pebble.
func TestStore_AgreesWithModel(t *testing.T) {
	t.Parallel()
	tbl := testTable(1)
	rapid.Check(t, func(t *rapid.T) {
		muts := rapid.SliceOfN(genMutation(tbl), 1, 25).Draw(t, "mutations")
		var m model
		s := newReopenable(t)
		defer func() { s.close(t) }()
		check := func() {
			ranges := rapid.OneOf(rapid.Just([]Range(nil)), rapid.SliceOfN(genRange, 0, 3)).Draw(t, "ranges")
			reverse := rapid.Bool().Draw(t, "reverse")
			now := s.clock.sec.Load()
			if got, want := s.dump(t, tbl, ranges, reverse), m.dump(now, ranges, reverse); got != want {
				t.Fatalf("at %d, ranges %v, reverse %v:\n got:\n%swant:\n%s", now, ranges, reverse, got, want)
			}
		}
		for len(m.writes) < len(muts) {
			n := rapid.IntRange(1, min(3, len(muts)-len(m.writes))).Draw(t, "batch")
			batch := muts[len(m.writes) : len(m.writes)+n]
			apply(t, s.Store, batch...)
			m.writes = muts[:len(m.writes)+n]
			switch rapid.IntRange(0, 9).Draw(t, "then") {
			case 0:
				if err := s.db.Flush(); err != nil {
					t.Fatal(err)
				}
			case 1:
				if err := s.db.Compact(t.Context(), []byte{spaceMeta}, []byte{spaceData + 1}, false); err != nil {
					t.Fatal(err)
				}
			case 2:
				s.close(t)
				s.open(t)
			case 3:
				s.clock.sec.Add(rapid.Int64Range(0, 5).Draw(t, "seconds"))
			case 4:
				check()
			}
		}
		check()

		// The same writes one by one in another order.
		other := newReopenable(t)
		defer func() { other.close(t) }()
		for _, w := range rapid.Permutation(muts).Draw(t, "order") {
			apply(t, other.Store, w)
		}
		other.clock.sec.Store(s.clock.sec.Load())
		if got, want := other.dump(t, tbl, nil, false), s.dump(t, tbl, nil, false); got != want {
			t.Fatalf("in another order:\n got:\n%swant:\n%s", got, want)
		}
	})
}
