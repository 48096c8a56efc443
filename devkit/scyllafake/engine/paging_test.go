package engine_test

import (
	"context"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/test/seeds"
)

// pages reads a statement page by page and writes the pages as answer does.
func (n *node) pages(text string, size int32) []string {
	n.t.Helper()
	params := n.params
	params.PageSize = size
	p := n.mustPlan(text)
	var out []string
	for range 1000 {
		res, err := n.engine.Execute(context.Background(), p, params)
		out = append(out, show(n.t, res, err))
		if err != nil || res.PagingState == nil {
			return out
		}
		params.PagingState = res.PagingState
	}
	n.t.Fatalf("%s: no end of pages", text)
	return nil
}

// The pages match the recordings, cases C4, C5 and C7.filter.
func TestSelect_Pages(t *testing.T) {
	t.Parallel()
	n := setup(t, usualTables...)
	insertPlain(n)
	for ck := range 10 {
		n.play(step{"INSERT INTO plain (pk, ck, v) VALUES (2, " + itoa(ck+1) + ", 0)", ""})
	}
	n.play(step{"INSERT INTO plain (pk, s) VALUES (3, 3)", ""})
	for _, c := range []struct {
		cql  string
		size int32
		want string
	}{
		{"SELECT ck FROM plain WHERE pk = 1", 3, "1 | 2 | 3 +; 4 | 5 | 6 +; 7 | 8 | 9 +; 10"},
		{"SELECT ck FROM plain WHERE pk = 1", 5, "1 | 2 | 3 | 4 | 5 +; 6 | 7 | 8 | 9 | 10 +; none"},
		{"SELECT ck FROM plain WHERE pk = 1 AND ck < 4", 11, "1 | 2 | 3"},
		{"SELECT ck FROM plain WHERE pk = 1 LIMIT 2", 1, "1 +; 2"},
		{"SELECT ck FROM plain WHERE pk = 1 LIMIT 5", 5, "1 | 2 | 3 | 4 | 5"},
		{"SELECT ck FROM plain WHERE pk = 1 LIMIT 6", 4, "1 | 2 | 3 | 4 +; 5 | 6"},
		{"SELECT pk, ck, s FROM plain WHERE pk IN (2, 3)", 11, "2 1 null | 2 2 null | 2 3 null | 2 4 null | 2 5 null | 2 6 null | 2 7 null | 2 8 null | 2 9 null | 2 10 null | 3 null 3 +; none"},
		{"SELECT pk, ck FROM plain PER PARTITION LIMIT 3", 4, "1 1 | 1 2 | 1 3 +; none +; 2 1 | 2 2 +; 2 3 +; none +; 3 null"},
		{"SELECT pk, ck FROM plain WHERE pk IN (1, 2) PER PARTITION LIMIT 2", 5000, "1 1 | 1 2 | 2 1 | 2 2 +; none"},
		{"SELECT DISTINCT pk FROM plain", 1, "1 +; 2 +; 3 +; none"},
		{"SELECT COUNT(*) FROM plain", 4, "21"},
		{"SELECT ck FROM plain WHERE pk = 1 ORDER BY ck DESC", 4, "10 | 9 | 8 | 7 +; 6 | 5 | 4 | 3 +; 2 | 1"},
		{"SELECT ck FROM plain WHERE pk = 77", 4, "none"},
		{"SELECT ck FROM plain WHERE pk = 1 AND ck = 4", 1, "4"},
		{"SELECT ck FROM plain WHERE pk = 1 AND ck IN (4, 5)", 2, "4 | 5"},
		{"SELECT ck FROM plain WHERE pk = 1 AND ck IN (4, 5, 6)", 2, "4 | 5 +; 6"},
		{"SELECT ck FROM plain WHERE pk = 1 AND v > 3 ALLOW FILTERING", 2, "none +; 4 +; 5 | 6 +; 7 | 8 +; 9 | 10 +; none"},
		{"SELECT ck FROM plain WHERE pk = 1 AND v < 2 ALLOW FILTERING", 5000, "1 +; none"},
		{"SELECT ck FROM plain WHERE pk = 1 AND v > 0 ALLOW FILTERING", 5000, "1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 | 10"},
		{"SELECT ck FROM plain WHERE v = 3 LIMIT 1 ALLOW FILTERING", 5000, "3"},
	} {
		if got := strings.Join(n.pages(c.cql, c.size), "; "); got != c.want {
			t.Errorf("%s, page size %d\n got %s\nwant %s", c.cql, c.size, got, c.want)
		}
	}
}

func TestSelect_PagingState(t *testing.T) {
	t.Parallel()
	n := setup(t, usualTables...)
	insertPlain(n)
	params := n.params
	params.PageSize = 3
	res, err := n.engine.Execute(t.Context(), n.mustPlan("SELECT ck FROM plain WHERE pk = 1"), params)
	if err != nil {
		t.Fatal(err)
	}
	state := res.PagingState
	for _, c := range []struct {
		name, cql string
		state     []byte
		want      string
	}{
		{"the statement's own", "SELECT ck FROM plain WHERE pk = 1", state, "4 | 5 | 6 +"},
		{"another partition", "SELECT ck FROM plain WHERE pk = 2", state, "none"},
		{"another table", "SELECT k FROM kv", state, "none"},
		{"cut off", "SELECT ck FROM plain WHERE pk = 1", state[:len(state)-1], "000a Invalid value for the paging state"},
		{"rubbish", "SELECT ck FROM plain WHERE pk = 1", []byte{1, 2, 3}, "000a Invalid value for the paging state"},
		{"empty", "SELECT ck FROM plain WHERE pk = 1", []byte{}, "000a Invalid value for the paging state"},
	} {
		params.PagingState = c.state
		res, err := n.engine.Execute(t.Context(), n.mustPlan(c.cql), params)
		if got := show(t, res, err); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// A state made up with a right checksum leads to no position that the table
// could not have.
func TestSelect_ForgedPagingState(t *testing.T) {
	t.Parallel()
	rnd := seeds.Rand(t)
	n := setup(t, usualTables...)
	insertPlain(n)
	params := n.params
	params.PageSize = 3
	p := n.mustPlan("SELECT ck FROM plain")
	res, err := n.engine.Execute(t.Context(), p, params)
	if err != nil {
		t.Fatal(err)
	}
	for range 2000 {
		forged := slices.Clone(res.PagingState[:len(res.PagingState)-4])
		for range 1 + rnd.IntN(3) {
			forged[rnd.IntN(len(forged))] = byte(rnd.IntN(256))
		}
		params.PagingState = binary.BigEndian.AppendUint32(forged, crc32.ChecksumIEEE(forged))
		res, err := n.engine.Execute(t.Context(), p, params)
		if got := show(t, res, err); err != nil && got != "000a Invalid value for the paging state" {
			t.Fatalf("state %x: %s", params.PagingState, got)
		}
	}
}

// Whatever the page size, the pages together are the unpaged answer.
func TestSelect_PagesAddUp(t *testing.T) {
	t.Parallel()
	rnd := seeds.Rand(t)
	n := setup(t, usualTables...)
	for range 120 {
		pk, ck := rnd.IntN(9), rnd.IntN(9)
		switch rnd.IntN(6) {
		case 0:
			n.play(step{"INSERT INTO plain (pk, s) VALUES (" + itoa(pk) + ", 1)", ""})
		case 1:
			n.play(step{"DELETE FROM plain WHERE pk = " + itoa(pk) + " AND ck > " + itoa(ck), ""})
		default:
			n.play(step{"INSERT INTO plain (pk, ck, v) VALUES (" + itoa(pk) + ", " + itoa(ck) + ", " + itoa(rnd.IntN(4)) + ")", ""})
		}
	}
	for _, text := range []string{
		"SELECT pk, ck, s, v FROM plain",
		"SELECT pk, ck FROM plain LIMIT 17",
		"SELECT pk, ck FROM plain PER PARTITION LIMIT 2",
		"SELECT pk, ck FROM plain PER PARTITION LIMIT 2 LIMIT 5",
		"SELECT DISTINCT pk, s FROM plain",
		"SELECT pk, ck FROM plain WHERE pk IN (5, 1, 3, 8, 2)",
		"SELECT pk, ck FROM plain WHERE pk IN (5, 1, 3) AND ck > 2 AND ck <= 7",
		"SELECT pk, ck FROM plain WHERE pk IN (5, 1, 3) AND ck IN (7, 2, 4)",
		"SELECT pk, ck FROM plain WHERE pk = 4 ORDER BY ck DESC",
		"SELECT pk, ck FROM plain WHERE v = 2 ALLOW FILTERING",
		"SELECT pk, ck FROM plain WHERE v = 2 LIMIT 4 ALLOW FILTERING",
		"SELECT pk, ck FROM plain WHERE token(pk) > 0",
	} {
		want := n.answer(text)
		for _, size := range []int32{1, 2, 3, 7, 50} {
			var parts []string
			for _, p := range n.pages(text, size) {
				if p = strings.TrimSuffix(p, " +"); p != "none" {
					parts = append(parts, p)
				}
			}
			got := strings.Join(parts, " | ")
			if got == "" {
				got = "none"
			}
			if got != want {
				t.Errorf("%s, page size %d\n got %s\nwant %s", text, size, got, want)
			}
		}
	}
}

func TestSelect_PageEndsAtOneMegabyte(t *testing.T) {
	t.Parallel()
	n := setup(t, "CREATE TABLE wide (pk int, ck int, w blob, PRIMARY KEY (pk, ck))")
	for i := range 5 {
		if got := n.answer("INSERT INTO wide (pk, ck, w) VALUES (1, ?, ?)", int32Value(int32(i)), engine.Value{Bytes: make([]byte, 400_000)}); got != "" {
			t.Fatal(got)
		}
	}
	if got := n.pages("SELECT ck, w FROM wide", 5000); len(got) != 2 {
		t.Errorf("2 MB came in %d pages, want 2", len(got))
	}
	if got := n.pages("SELECT ck FROM wide", 5000); len(got) != 1 {
		t.Errorf("small columns came in %d pages, want 1", len(got))
	}
}
