package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
)

// records counts the physical records of a table.
func records(t *testing.T, s *Store, storeID uint32) (n int) {
	t.Helper()
	it, err := s.db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	for ok := it.SeekGE(appendTable(nil, storeID)); ok && it.Valid(); ok = it.Next() {
		if it.Key()[0] == spaceData {
			n++
		}
	}
	return n
}

func purge(t *testing.T, s *Store, storeID uint32) int {
	t.Helper()
	n, err := s.Purge(t.Context(), testTable(storeID))
	if err != nil {
		t.Fatalf("Purge() error = %v", err)
	}
	return n
}

func TestPurge_WaitsForGrace(t *testing.T) {
	t.Parallel()
	s, c := setup(t) // second 1000; gc_grace_seconds is 100
	tbl := testTable(1)
	row := func(n int, r Row) Row { r.Clustering = ck(n, 0); return r }
	m := rowMutation(tbl, "k",
		row(1, Row{Columns: []ColumnData{cellOf(colA, ttl(5, "x", 10, 1010))}}),
		row(2, Row{Marker: ttl(5, "", 10, 1010), Columns: []ColumnData{cellOf(colA, live(5, "stays"))}}),
		row(3, Row{Columns: []ColumnData{cellOf(colA, dead(5))}}),
		row(4, Row{Deleted: deletion(5)}),
		row(5, Row{Columns: []ColumnData{{ID: colSet, Deleted: deletion(5)}}}),
		row(6, Row{Columns: []ColumnData{{ID: colSet, Elements: []Element{element(1, dead(5))}}}}),
	)
	m.Static = &Row{Columns: []ColumnData{cellOf(colS, ttl(5, "s", 10, 1010))}}
	apply(t, s, m)
	gone := partition(tbl, "gone")
	gone.Deleted = deletion(5)
	gone.Ranges = []RangeDeletion{{between(bound(true, 1), bound(true, 1)), deletion(6)}}
	apply(t, s, gone)

	const stays = "k@7\n (2 0) 4=stays@5\n"
	for _, tt := range []struct {
		second             int64
		removed, remaining int
	}{
		{1050, 0, 8},
		{1099, 0, 8},
		{1100, 5, 3}, // the deletions were made in second 1000
		{1109, 0, 3},
		{1110, 2, 1}, // expired in 1010
		{1 << 40, 0, 1},
	} {
		c.sec.Store(tt.second)
		if got := purge(t, s, 1); got != tt.removed {
			t.Errorf("at %d: Purge() = %d, want %d", tt.second, got, tt.removed)
		}
		if got := records(t, s, 1); got != tt.remaining {
			t.Errorf("at %d: %d records remain, want %d", tt.second, got, tt.remaining)
		}
		want(t, "Scan()", dump(t, s, all(tbl)), stays)
	}
}

// Within gc_grace_seconds an older write that arrives late loses, as before.
func TestPurge_KeepsTombstonesForLateWrites(t *testing.T) {
	t.Parallel()
	s, c := setup(t)
	tbl := testTable(1)
	m := rowMutation(tbl, "k", Row{Clustering: ck(1, 1), Deleted: deletion(10)}, Row{Clustering: ck(2, 2), Marker: ttl(10, "", 5, 1005)})
	apply(t, s, m)
	m = partition(tbl, "k")
	m.Ranges = []RangeDeletion{{between(bound(true, 3), bound(true, 3)), deletion(10)}}
	apply(t, s, m)
	c.sec.Store(1099)
	purge(t, s, 1)
	apply(t, s, rowMutation(tbl, "k",
		Row{Clustering: ck(1, 1), Marker: live(9, "")},
		Row{Clustering: ck(2, 2), Marker: live(9, "")},
		Row{Clustering: ck(3, 3), Marker: live(9, "")},
	))
	want(t, "Scan()", dump(t, s, all(tbl)), "")
	purge(t, s, 1)
	want(t, "Scan() after another purge", dump(t, s, all(tbl)), "")
}

// A partition's tombstone goes only when nothing is left for it to cover.
func TestPurge_CoveredRowsBeforeTheirTombstone(t *testing.T) {
	t.Parallel()
	s, c := setup(t)
	tbl := testTable(1)
	grid(t, s, tbl, "k")
	m := partition(tbl, "k")
	m.Deleted = deletion(1)
	apply(t, s, m)
	newer := rowMutation(tbl, "k", Row{Clustering: ck(2, 2), Columns: []ColumnData{cellOf(colA, live(2, "newer"))}})
	apply(t, s, newer)
	const stays = "k@7\n (2 2) 4=newer@2\n"

	if got := purge(t, s, 1); got != 8 { // covered forever: immediately
		t.Errorf("Purge() = %d, want 8 rows", got)
	}
	c.sec.Store(5000)
	for range 3 {
		if got := purge(t, s, 1); got != 0 {
			t.Errorf("Purge() = %d, want 0: the marker of row (2 2) is still covered", got)
		}
		want(t, "Scan()", dump(t, s, all(tbl)), stays)
	}
	apply(t, s, rowMutation(tbl, "k", Row{Clustering: ck(2, 2), Deleted: deletion(2)}))
	c.sec.Store(10000)
	if got := purge(t, s, 1) + purge(t, s, 1); got != 2 {
		t.Errorf("Purge() twice = %d, want row and tombstone", got)
	}
	if n := records(t, s, 1); n != 0 {
		t.Errorf("%d records remain", n)
	}
}

// Writes that come in while a purge runs are never lost.
func TestPurge_BesideWrites(t *testing.T) {
	t.Parallel()
	s, c := setup(t)
	tbl := testTable(1)
	const rows = 2000
	old := partition(tbl, "k")
	for i := range rows {
		old.Rows = append(old.Rows, Row{Clustering: ck(i, 0), Columns: []ColumnData{cellOf(colA, ttl(1, "old", 1, 1001))}})
	}
	apply(t, s, old)
	c.sec.Store(5000)
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			for i := range rows / 2 {
				n := 2*i + w
				if n%3 == 0 {
					apply(t, s, rowMutation(tbl, "k", Row{Clustering: ck(n, 0), Columns: []ColumnData{cellOf(colB, live(0, "new"))}}))
				}
			}
		})
	}
	wg.Go(func() {
		for range 5 {
			if _, err := s.Purge(t.Context(), tbl); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	purge(t, s, 1)
	got := 0
	it, err := s.Scan(one(tbl, "k"))
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	for it.NextPartition() {
		for it.NextRow() {
			got++
		}
	}
	if want := (rows + 2) / 3; got != want || records(t, s, 1) != want {
		t.Errorf("%d rows live in %d records, want %d", got, records(t, s, 1), want)
	}
}

func TestPurge_StopsWithContext(t *testing.T) {
	t.Parallel()
	s, _ := setup(t)
	m := partition(testTable(1), "k")
	m.Deleted = deletion(9)
	for i := range 2 * purgeChunk {
		m.Rows = append(m.Rows, Row{Clustering: ck(i, 0), Marker: live(1, "")})
	}
	apply(t, s, m)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Purge(ctx, testTable(1)); !errors.Is(err, context.Canceled) {
		t.Errorf("Purge() error = %v, want canceled", err)
	}
	want(t, "then", fmt.Sprint(purge(t, s, 1)), fmt.Sprint(2*purgeChunk))
}
