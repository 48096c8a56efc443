package store

import (
	"strings"
	"testing"
)

// The outcomes are those recorded from a real node (golden C, cases C9 to C11).
func TestApply_Reconciles(t *testing.T) {
	t.Parallel()
	tbl := kvTable(1)
	row := func(r Row) *Mutation { return rowMutation(tbl, "k", r) }
	set := func(c *Cell) *Mutation { return row(Row{Columns: []ColumnData{columnData(colA, c)}}) }
	insert := func(m, c *Cell) *Mutation {
		return row(Row{Marker: m, Columns: []ColumnData{columnData(colA, c)}})
	}
	elements := func(del Deletion, e ...Element) *Mutation {
		return row(Row{Columns: []ColumnData{{ID: colSet, Deleted: del, Elements: e}}})
	}
	partitionDeletion := partition(tbl, "k")
	partitionDeletion.Deleted = deletion(10)
	var marker *Cell = live(10, "")

	tests := []struct {
		name   string
		writes []*Mutation
		want   string // the row; "" for none
	}{
		{"higher timestamp wins", []*Mutation{set(live(10, "x")), set(live(11, "a"))}, "() 4=a@11"},
		{"tie: larger value", []*Mutation{set(live(10, "1")), set(live(10, "2")), set(live(10, "1"))}, "() 4=2@10"},
		{"tie: values are unsigned bytes", []*Mutation{set(live(10, "\xff")), set(live(10, "\x01"))}, "() 4=\xff@10"},
		{"tie: longer of two values with one prefix", []*Mutation{set(live(10, "a")), set(live(10, "ab"))}, "() 4=ab@10"},
		{"tie: delete beats live", []*Mutation{set(live(10, "x")), set(dead(10))}, ""},
		{"tie: TTL beats none, whatever the value", []*Mutation{set(ttl(10, "a", 100, 1100)), set(live(10, "b"))}, "() 4=a@10/100!1100"},
		{"tie: later expiry beats value", []*Mutation{set(ttl(10, "5", 1000, 2000)), set(ttl(10, "4", 2000, 3000))}, "() 4=4@10/2000!3000"},
		{"tie: smaller TTL with one expiry", []*Mutation{set(ttl(10, "9", 200, 1100)), set(ttl(10, "1", 100, 1100))}, "() 4=1@10/100!1100"},
		{"negative and extreme timestamps", []*Mutation{set(live(-1<<63+1, "lowest")), set(live(1<<63-1, "highest"))}, "() 4=highest@9223372036854775807"},
		{"timestamp zero", []*Mutation{set(live(0, "zero"))}, "() 4=zero@0"},
		{"empty value is not null", []*Mutation{set(live(1, ""))}, "() 4=@1"},

		{"row delete covers its own timestamp", []*Mutation{insert(marker, live(10, "x")), row(Row{Deleted: deletion(10)})}, ""},
		{"row delete leaves what is newer", []*Mutation{insert(marker, live(11, "x")), row(Row{Deleted: deletion(10)})}, "() 4=x@11"},
		{"insert and delete in one batch", []*Mutation{row(Row{Deleted: deletion(10)}), insert(marker, live(10, "x"))}, ""},
		{"partition delete covers its own timestamp", []*Mutation{insert(marker, live(10, "x")), partitionDeletion}, ""},
		{"partition delete leaves what is newer", []*Mutation{insert(live(11, ""), live(10, "x")), partitionDeletion}, "() M@11"},

		{"marker alone is a row", []*Mutation{row(Row{Marker: marker})}, "() M@10"},
		{"marker outlives its cells", []*Mutation{insert(marker, live(10, "x")), set(dead(11))}, "() M@10"},
		{"update without cells left is no row", []*Mutation{set(live(10, "x")), set(dead(11))}, ""},
		{"nothing was ever live", []*Mutation{set(dead(10))}, ""},
		{"marker with TTL gone, cell stays", []*Mutation{row(Row{Marker: ttl(10, "", 1, 1000)}), set(live(11, "x"))}, "() 4=x@11"},
		{"marker with TTL gone, cell nulled", []*Mutation{insert(ttl(10, "", 1, 1000), ttl(10, "x", 1, 1000)), set(dead(11))}, ""},
		{"expired cell shadows what it beat", []*Mutation{set(live(10, "old")), set(ttl(11, "new", 1, 1000))}, ""},
		{"expired cell wins its tie", []*Mutation{set(live(10, "old")), set(ttl(10, "new", 1, 1000))}, ""},

		{"elements", []*Mutation{elements(Deletion{}, element(2, live(10, ""))), elements(Deletion{}, element(1, live(10, "")))}, "() 6={1:@10 2:@10}"},
		{"elements come in the order of their type", []*Mutation{elements(Deletion{}, element(1, live(10, "")), element(-1, live(10, "")))}, "() 6={-1:@10 1:@10}"},
		{"element removed", []*Mutation{elements(Deletion{}, element(1, live(10, "")), element(2, live(10, ""))), elements(Deletion{}, element(1, dead(11)))}, "() 6={2:@10}"},
		{"last element removed", []*Mutation{elements(Deletion{}, element(1, live(10, ""))), elements(Deletion{}, element(1, dead(11)))}, ""},
		{"assignment replaces", []*Mutation{elements(Deletion{}, element(1, live(10, ""))), elements(deletion(11), element(2, live(12, "")))}, "() 6={2:@12}"},
		{"collection delete covers its own timestamp", []*Mutation{elements(deletion(10), element(1, live(10, "")), element(2, live(11, "")))}, "() 6={2:@11}"},
		{"unordered and repeated parts of one mutation", []*Mutation{row(Row{Columns: []ColumnData{
			{ID: colSet, Elements: []Element{element(3, live(10, "")), element(1, live(10, "")), element(3, dead(10))}},
			columnData(colB, live(10, "b")), columnData(colA, live(9, "a")), columnData(colA, live(10, "A")),
		}})}, "() 4=A@10 5=b@10 6={1:@10}"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			expect := ""
			if tt.want != "" {
				expect = "k@7\n " + tt.want + "\n"
			}
			n := len(tt.writes)
			// In any order, one by one and in one batch, in memory and flushed between.
			for _, reverse := range []bool{false, true} {
				writes := make([]*Mutation, n)
				for i, m := range tt.writes {
					if reverse {
						i = n - 1 - i
					}
					writes[i] = m
				}
				for _, mode := range []string{"singly", "batch", "flushed"} {
					s, _ := setup(t)
					if mode == "batch" {
						apply(t, s, writes...)
					}
					for _, m := range writes {
						if mode != "batch" {
							apply(t, s, m)
						}
						if mode == "flushed" {
							if err := s.db.Flush(); err != nil {
								t.Fatal(err)
							}
						}
					}
					want(t, strings.TrimSpace(mode+" reversed="+map[bool]string{true: "yes", false: "no"}[reverse]), dump(t, s, one(tbl, "k")), expect)
				}
			}
		})
	}
}

// A cell with TTL n written in second s dies in second s+n.
func TestScan_ExpiryFollowsTheClock(t *testing.T) {
	t.Parallel()
	s, c := setup(t)
	tbl := kvTable(1)
	apply(t, s, rowMutation(tbl, "k", Row{
		Marker:  ttl(1, "", 3, 1003),
		Columns: []ColumnData{columnData(colA, ttl(1, "v", 3, 1003)), columnData(colB, ttl(1, "w", 100, 1100))},
	}))
	const both = "k@7\n () M@1/3!1003 4=v@1/3!1003 5=w@1/100!1100\n"
	for _, tt := range []struct {
		second int64
		want   string
	}{
		{1000, both},
		{1002, both},
		{1003, "k@7\n () 5=w@1/100!1100\n"},
		{1099, "k@7\n () 5=w@1/100!1100\n"},
		{1100, ""},
	} {
		c.sec.Store(tt.second)
		want(t, "Scan()", dump(t, s, one(tbl, "k")), tt.want)
	}
}

// A row that is written and read over and over must not grow slower.
func TestClose_CollapsesCrowdedRecords(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	tbl := testTable(1)
	for i := range 3 * crowd {
		m := rowMutation(tbl, "k", Row{Clustering: ck(1, 1), Columns: []ColumnData{columnData(colA, live(int64(i), "v"))}})
		m.Deleted = deletion(-5)
		m.Static = &Row{Columns: []ColumnData{columnData(colS, live(int64(i), "s"))}}
		apply(t, s, m)
	}
	const expect = "k@7 static() 3=s@191\n (1 1) 4=v@191\n"
	for range 3 {
		want(t, "Scan()", dump(t, s, one(tbl, "k")), expect)
	}
	if got := s.rewrites.Load(); got != 3 {
		t.Errorf("records written back = %d, want 3: partition, static row and row, once each", got)
	}
}

func TestScan_DroppedColumnsDoNotShow(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	before := testTable(1)
	apply(t, s, rowMutation(before, "k",
		Row{Clustering: ck(1, 1), Columns: []ColumnData{columnData(colA, live(1, "a")), columnData(colB, live(1, "b"))}},
		Row{Clustering: ck(2, 1), Columns: []ColumnData{columnData(colB, live(1, "b")), {ID: colSet, Elements: []Element{element(1, live(1, ""))}}}},
	))
	after := testTable(1)
	after.Regulars = after.Regulars[:1]
	want(t, "after DROP", dump(t, s, one(indexColumns(after), "k")), "k@7\n (1 1) 4=a@1\n")
	want(t, "before DROP", dump(t, s, one(before, "k")), "k@7\n (1 1) 4=a@1 5=b@1\n (2 1) 5=b@1 6={1:@1}\n")
}
