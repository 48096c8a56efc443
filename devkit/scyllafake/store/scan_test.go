package store

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
)

func bound(inclusive bool, prefix ...int) Bound {
	return Bound{Prefix: ck(prefix...), Inclusive: inclusive}
}

func between(start, end Bound) Range { return Range{start, end} }

var unbounded = bound(true)

// grid fills a partition with rows (1..3, 1..3); c2 is descending.
func grid(t testing.TB, s *Store, tbl *catalog.Table, key string) {
	m := partition(tbl, key)
	for c1 := 1; c1 <= 3; c1++ {
		for c2 := 1; c2 <= 3; c2++ {
			m.Rows = append(m.Rows, Row{Clustering: ck(c1, c2), Marker: live(1, "")})
		}
	}
	apply(t, s, m)
}

// scanRows lists the clustering of the rows a scan gives, as "11 12 …", with
// the partition before each group if there are several.
func scanRows(t testing.TB, s *Store, sc Scan) string {
	t.Helper()
	var out []string
	for line := range strings.Lines(dump(t, s, sc)) {
		if c1, c2 := 0, 0; line[0] == ' ' {
			if _, err := fmt.Sscanf(line, " (%d %d)", &c1, &c2); err != nil {
				t.Fatal(err)
			}
			out = append(out, fmt.Sprintf("%d%d", c1, c2))
		}
	}
	return strings.Join(out, " ")
}

func TestScan_Ranges(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	tbl := testTable(1)
	grid(t, s, tbl, "a")
	grid(t, s, tbl, "k")
	grid(t, s, tbl, "z")
	tests := []struct {
		name   string
		ranges []Range
		want   string
	}{
		{"all", nil, "13 12 11 23 22 21 33 32 31"},
		{"none", []Range{}, ""},
		{"unbounded", []Range{between(unbounded, unbounded)}, "13 12 11 23 22 21 33 32 31"},
		{"one row", []Range{between(bound(true, 2, 2), bound(true, 2, 2))}, "22"},
		{"row that is not there", []Range{between(bound(true, 2, 9), bound(true, 2, 9))}, ""},
		{"prefix", []Range{between(bound(true, 2), bound(true, 2))}, "23 22 21"},
		{"c1 > 1", []Range{between(bound(false, 1), unbounded)}, "23 22 21 33 32 31"},
		{"c1 < 2", []Range{between(unbounded, bound(false, 2))}, "13 12 11"},
		{"c1 <= 2", []Range{between(unbounded, bound(true, 2))}, "13 12 11 23 22 21"},
		{"c1 = 2 and c2 < 3", []Range{between(bound(false, 2, 3), bound(true, 2))}, "22 21"},
		{"c1 = 2 and c2 >= 2", []Range{between(bound(true, 2), bound(true, 2, 2))}, "23 22"},
		{"c1 = 2 and 1 < c2 < 3", []Range{between(bound(false, 2, 3), bound(false, 2, 1))}, "22"},
		{"impossible", []Range{between(bound(true, 3), bound(true, 1))}, ""},
		{"empty interval", []Range{between(bound(false, 2), bound(false, 2))}, ""},
		{"several rows", []Range{between(bound(true, 1, 3), bound(true, 1, 3)), between(bound(true, 3, 2), bound(true, 3, 2))}, "13 32"},
		{"out of order, overlapping", []Range{between(bound(true, 3), unbounded), between(bound(true, 2, 1), bound(true, 3, 3)), between(bound(true, 1, 1), bound(true, 1, 1))}, "11 21 33 32 31"},
		{"nothing in the first", []Range{between(bound(true, 0), bound(true, 0)), between(bound(true, 3, 1), bound(true, 9))}, "31"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			sc := one(tbl, "k")
			sc.Ranges = tt.ranges
			want(t, "Scan()", scanRows(t, s, sc), tt.want)

			sc.Reverse = true
			backwards := strings.Fields(tt.want)
			slices.Reverse(backwards)
			want(t, "reversed", scanRows(t, s, sc), strings.Join(backwards, " "))

			tokens := all(tbl)
			tokens.Ranges = tt.ranges
			want(t, "each partition", scanRows(t, s, tokens), strings.TrimSpace(strings.Repeat(tt.want+" ", 3)))
		})
	}
}

func TestScan_RejectsOverlongBounds(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	tbl := testTable(1)
	long := bound(true, 1, 2, 3)
	scan := one(tbl, "k")
	scan.Ranges = []Range{between(long, unbounded)}
	if _, err := s.Scan(scan); err == nil {
		t.Error("Scan() with three values in a bound succeeded")
	}
	scan = one(tbl, "k")
	scan.After = &Position{Clustering: long.Prefix}
	if _, err := s.Scan(scan); err == nil {
		t.Error("Scan() after three values succeeded")
	}
	m := partition(tbl, "k")
	m.Ranges = []RangeDeletion{{between(unbounded, long), deletion(1)}}
	if err := s.Apply([]*Mutation{m}); err == nil {
		t.Error("Apply() of a range with three values succeeded")
	}
	if err := s.Apply([]*Mutation{rowMutation(tbl, "k", Row{Clustering: ck(1)})}); err == nil {
		t.Error("Apply() of a row with one value succeeded")
	}
}

func TestScan_TokensAndKeys(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	tbl := kvTable(7)
	other := kvTable(8)
	// All but the first two share a token with another key.
	keys := []string{"a", "b\x00", "b\x00\x00", "b\x00\xff", "b\x01", "c", "c\x00", "d\xff", "d\xff\xff"}
	for _, i := range []int{4, 2, 0, 8, 6, 1, 3, 5, 7} {
		for _, tb := range []*catalog.Table{tbl, other} {
			apply(t, s, rowMutation(tb, keys[i], Row{Marker: live(1, "")}))
		}
	}
	got := func(sc Scan) string {
		var out []string
		it, err := s.Scan(sc)
		if err != nil {
			t.Fatal(err)
		}
		defer it.Close()
		for it.NextPartition() {
			if want := testToken(string(it.Key())); it.Token() != want {
				t.Errorf("Token() = %d, want %d", it.Token(), want)
			}
			out = append(out, string(it.Key()))
		}
		return fmt.Sprintf("%q", out)
	}
	q := func(from, to int) string { return fmt.Sprintf("%q", append([]string(nil), keys[from:to]...)) }
	want(t, "all", got(all(tbl)), q(0, 9))
	want(t, "inclusive tokens", got(Scan{Table: tbl, MinToken: testToken("b"), MaxToken: testToken("c")}), q(1, 7))
	want(t, "no tokens", got(Scan{Table: tbl, MinToken: 5, MaxToken: 4}), q(0, 0))
	want(t, "one key", got(Scan{Table: tbl, Key: []byte("b\x00"), Token: testToken("b")}), q(1, 2))
	for i, k := range keys {
		sc := all(tbl)
		sc.After = &Position{Token: testToken(k), Key: []byte(k)}
		want(t, fmt.Sprintf("after %q", k), got(sc), q(i+1, 9))
	}
	if err := s.DropTable(7); err != nil {
		t.Fatal(err)
	}
	want(t, "dropped", got(all(tbl)), q(0, 0))
	want(t, "the next table", got(all(other)), q(0, 9))
	apply(t, s, rowMutation(tbl, "b\x00", Row{Marker: live(0, "")}))
	want(t, "written after the drop", got(all(tbl)), q(1, 2))
}

// Pages of any size return the same rows as one read.
func TestScan_Pages(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	tbl := testTable(1)
	grid(t, s, tbl, "b")
	grid(t, s, tbl, "d")
	static := partition(tbl, "c") // static row alone
	static.Static = &Row{Columns: []ColumnData{columnData(colS, live(1, "s"))}}
	statics := partition(tbl, "d")
	statics.Static = static.Static
	apply(t, s, static, statics)

	type place struct{ key, row string }
	read := func(sc Scan, limit int) (out []place, next *Position) {
		it, err := s.Scan(sc)
		if err != nil {
			t.Fatal(err)
		}
		defer it.Close()
		for it.NextPartition() {
			at := Position{Token: it.Token(), Key: bytes.Clone(it.Key())}
			n := 0
			for it.NextRow() {
				if len(out) == limit {
					return out, next
				}
				n++
				at.Clustering = it.Row().Clone().Clustering
				pos := at
				next = &pos
				out = append(out, place{string(it.Key()), show(it.Row())})
			}
			if n == 0 {
				if len(out) == limit {
					return out, next
				}
				pos := at
				pos.Clustering = nil
				next = &pos
				out = append(out, place{string(it.Key()), show(it.Static())})
			}
		}
		return out, nil
	}
	for _, reverse := range []bool{false, true} {
		for _, ranges := range [][]Range{nil, {between(bound(true, 1, 2), bound(true, 2)), between(bound(false, 3, 3), bound(false, 3, 1))}} {
			sc := all(tbl)
			sc.Reverse, sc.Ranges = reverse, ranges
			whole, _ := read(sc, 1000)
			if len(whole) < 12 {
				t.Fatalf("only %d rows", len(whole))
			}
			for size := 1; size <= len(whole); size++ {
				var paged []place
				sc.After = nil
				for {
					page, next := read(sc, size)
					paged = append(paged, page...)
					if next == nil {
						break
					}
					sc.After = next
				}
				if !slices.Equal(paged, whole) {
					t.Errorf("reverse=%v ranges=%v size=%d:\n got %v\nwant %v", reverse, ranges != nil, size, paged, whole)
				}
			}
			// Whole passes over the rest of the partition.
			sc.After = &Position{Token: testToken("b"), Key: []byte("b"), Clustering: ck(1, 2), Whole: true}
			rest, _ := read(sc, 1000)
			if len(rest) == 0 || rest[0].key != "c" {
				t.Errorf("after the whole of b: %v", rest)
			}
		}
	}
	sc := one(tbl, "c")
	sc.After = &Position{Token: testToken("c"), Key: []byte("c")}
	want(t, "after a static row", dump(t, s, sc), "")
}

func TestScan_StaticRows(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	tbl := testTable(1)
	m := rowMutation(tbl, "k", Row{Clustering: ck(1, 1), Marker: live(5, "")})
	m.Static = &Row{Columns: []ColumnData{columnData(colS, live(5, "s"))}}
	apply(t, s, m)
	const both = "k@7 static() 3=s@5\n (1 1) M@5\n"
	want(t, "both", dump(t, s, one(tbl, "k")), both)
	want(t, "both of all", dump(t, s, all(tbl)), both)
	sc := one(tbl, "k")
	sc.Reverse = true
	want(t, "reversed", dump(t, s, sc), both)
	sc = one(tbl, "k")
	sc.Ranges = []Range{}
	want(t, "no rows asked for", dump(t, s, sc), "k@7 static() 3=s@5\n")

	row, static, err := s.Get(tbl, []byte("k"), testToken("k"), ck(1, 1))
	if err != nil || row == nil || static == nil {
		t.Errorf("Get() = %v, %v, %v", row, static, err)
	}
	row, static, err = s.Get(tbl, []byte("k"), testToken("k"), nil)
	if err != nil || row != nil || static == nil {
		t.Errorf("Get() of the static row = %v, %v, %v", row, static, err)
	}
	row, static, err = s.Get(tbl, []byte("x"), testToken("x"), ck(1, 1))
	if err != nil || row != nil || static != nil {
		t.Errorf("Get() of nothing = %v, %v, %v", row, static, err)
	}

	rows := partition(tbl, "k")
	rows.Ranges = []RangeDeletion{{between(unbounded, unbounded), deletion(9)}}
	apply(t, s, rows)
	want(t, "range deletes spare the static row", dump(t, s, one(tbl, "k")), "k@7 static() 3=s@5\n")
	gone := partition(tbl, "k")
	gone.Deleted = deletion(5)
	apply(t, s, gone)
	want(t, "partition deletes do not", dump(t, s, all(tbl)), "")
}

func TestScan_RangeDeletions(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	tbl := testTable(1)
	grid(t, s, tbl, "k")
	for _, r := range []RangeDeletion{
		{between(bound(true, 2), bound(true, 2)), deletion(1)},
		{between(bound(false, 1, 3), bound(false, 1, 1)), deletion(7)},
		{between(bound(true, 1, 2), bound(true, 3)), deletion(0)}, // older than the rows
		{between(unbounded, bound(true, 1, 3)), Deletion{}},       // deletes nothing
	} {
		m := partition(tbl, "k")
		m.Ranges = []RangeDeletion{r}
		apply(t, s, m)
	}
	want(t, "Scan()", scanRows(t, s, one(tbl, "k")), "13 11 33 32 31")
	apply(t, s, rowMutation(tbl, "k", Row{Clustering: ck(1, 2), Marker: live(7, "")}, Row{Clustering: ck(2, 2), Marker: live(2, "")}))
	want(t, "newer rows", scanRows(t, s, one(tbl, "k")), "13 11 22 33 32 31")
}

// An iterator sees one instant, during concurrent writes and drops.
func TestIter_SeesOneInstant(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	tbl := testTable(1)
	grid(t, s, tbl, "k")
	it, err := s.Scan(one(tbl, "k"))
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	if !it.NextPartition() || !it.NextRow() {
		t.Fatal("no row")
	}
	m := rowMutation(tbl, "k", Row{Clustering: ck(9, 9), Marker: live(1, "")})
	m.Deleted = deletion(50)
	apply(t, s, m)
	if err := s.DropTable(1); err != nil {
		t.Fatal(err)
	}
	n := 1
	for it.NextRow() {
		n++
	}
	if n != 9 || it.Err() != nil {
		t.Errorf("rows = %d, error %v, want 9", n, it.Err())
	}
	if it.NextRow() || it.NextPartition() {
		t.Error("more after the end")
	}
}

func TestIter_SkipsRestOfPartition(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	tbl := testTable(1)
	for _, k := range []string{"a", "b", "c"} {
		grid(t, s, tbl, k)
	}
	for _, reverse := range []bool{false, true} {
		for read := range 4 {
			sc := all(tbl)
			sc.Reverse = reverse
			it, err := s.Scan(sc)
			if err != nil {
				t.Fatal(err)
			}
			var keys string
			for it.NextPartition() {
				keys += string(it.Key())
				for range read {
					it.NextRow()
				}
			}
			if err := it.Close(); err != nil {
				t.Error(err)
			}
			want(t, fmt.Sprintf("partitions, %d rows read of each, reverse=%v", read, reverse), keys, "abc")
		}
	}
}

func TestMetas(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	tbl := kvTable(0)
	err := s.Apply([]*Mutation{rowMutation(tbl, "k", Row{Marker: live(1, "")})},
		Meta{"schema/b", []byte("2")}, Meta{"schema/a", []byte("1")}, Meta{"schema", []byte{}}, Meta{"schemb", []byte("x")}, Meta{"\xff", []byte("last")})
	if err != nil {
		t.Fatal(err)
	}
	got := func(prefix string) string {
		ms, err := s.Metas(prefix)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%q", ms)
	}
	want(t, "all", got(""), fmt.Sprintf("%q", []Meta{{"schema", []byte{}}, {"schema/a", []byte("1")}, {"schema/b", []byte("2")}, {"schemb", []byte("x")}, {"\xff", []byte("last")}}))
	want(t, "prefix", got("schema/"), fmt.Sprintf("%q", []Meta{{"schema/a", []byte("1")}, {"schema/b", []byte("2")}}))
	want(t, "0xff", got("\xff"), fmt.Sprintf("%q", []Meta{{"\xff", []byte("last")}}))
	if err := s.Apply(nil, Meta{Key: "schema/a"}, Meta{"schema/b", []byte("3")}); err != nil {
		t.Fatal(err)
	}
	want(t, "changed", got("schema/"), fmt.Sprintf("%q", []Meta{{"schema/b", []byte("3")}}))
}
