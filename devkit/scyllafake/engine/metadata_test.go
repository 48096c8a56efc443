package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
)

func specs(list []engine.ColumnSpec) string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = s.Keyspace + "." + s.Table + "." + s.Name + " " + s.Type.String()
	}
	return strings.ReplaceAll(strings.Join(out, ", "), "ks.", "")
}

// The expectations are case A7 of the recordings.
func TestPlan_BindMetadata(t *testing.T) {
	t.Parallel()
	n := setup(t, usualTables...)
	for _, c := range []struct {
		cql, binds string
		pk         []uint16
		global     bool
	}{
		{"SELECT * FROM base WHERE ck = ? AND pk = ?", "base.ck int, base.pk int", []uint16{1}, true},
		{"SELECT * FROM base WHERE pk IN (?, ?)", "base.value(in(pk)) int, base.value(in(pk)) int", nil, true},
		{"SELECT * FROM base WHERE pk IN ?", "base.in(pk) list<int>", nil, true},
		{"SELECT * FROM base WHERE pk = ? AND ck IN ?", "base.pk int, base.in(ck) list<int>", []uint16{0}, true},
		{
			"SELECT * FROM base WHERE token(pk) > ? AND token(pk) <= ? LIMIT ?",
			"base.partition key token bigint, base.partition key token bigint, base.[limit] int", nil, true,
		},
		{"SELECT * FROM base WHERE pk = :p AND ck = :c PER PARTITION LIMIT :l", "base.p int, base.c int, base.l int", []uint16{0}, true},
		{"SELECT * FROM base WHERE pk = :x AND ck = :x", "base.x int", nil, true},
		{"SELECT * FROM base WHERE pk = ? AND (ck) > (?)", "base.pk int, base.(ck)[0] int", []uint16{0}, true},
		{
			"INSERT INTO base (pk, ck, a) VALUES (?, ?, ?) USING TTL ? AND TIMESTAMP ?",
			"base.pk int, base.ck int, base.a int, base.[ttl] int, base.[timestamp] bigint",
			[]uint16{0},
			true,
		},
		{"INSERT INTO base (pk, ck, a) VALUES (1, ?, ?)", "base.ck int, base.a int", nil, true},
		{"UPDATE base USING TTL ? SET a = ? WHERE pk = ? AND ck = ?", "base.[ttl] int, base.a int, base.pk int, base.ck int", []uint16{2}, true},
		{
			"UPDATE base SET a = ? WHERE pk = ? AND ck = ? IF a IN (?, ?)",
			"base.a int, base.pk int, base.ck int, base.a int, base.a int",
			[]uint16{1},
			true,
		},
		{"UPDATE base SET a = ? WHERE pk = ? AND ck = ? IF a IN ?", "base.a int, base.pk int, base.ck int, base.in(a) list<int>", []uint16{1}, true},
		{"DELETE FROM base USING TIMESTAMP ? WHERE pk = ?", "base.[timestamp] bigint, base.pk int", []uint16{1}, true},
		{
			"BEGIN BATCH INSERT INTO base (pk, ck, a) VALUES (?, ?, ?) INSERT INTO kv (k, v) VALUES (?, ?) APPLY BATCH",
			"base.pk int, base.ck int, base.a int, kv.k int, kv.v int", nil, false,
		},
		{
			"BEGIN BATCH INSERT INTO base (pk, ck, a) VALUES (?, ?, ?) INSERT INTO base (pk, ck, a) VALUES (?, ?, ?) APPLY BATCH",
			"base.pk int, base.ck int, base.a int, base.pk int, base.ck int, base.a int",
			[]uint16{3},
			true,
		},
		{
			"BEGIN BATCH USING TIMESTAMP ? INSERT INTO kv (k, v) VALUES (?, ?) APPLY BATCH",
			"[batch].[batch].[timestamp] bigint, kv.k int, kv.v int", nil, false,
		},
	} {
		p := n.mustPlan(c.cql)
		if got := specs(p.Binds); got != c.binds {
			t.Errorf("%s\nbinds %s\n want %s", c.cql, got, c.binds)
		}
		if fmt.Sprint(p.PKIndexes) != fmt.Sprint(c.pk) || p.GlobalBinds != c.global {
			t.Errorf("%s: PKIndexes, GlobalBinds = %v, %v, want %v, %v", c.cql, p.PKIndexes, p.GlobalBinds, c.pk, c.global)
		}
	}
}

func TestPlan_ResultMetadata(t *testing.T) {
	t.Parallel()
	n := setup(t, append(usualTables, "CREATE TABLE ev (k int, t timeuuid, PRIMARY KEY (k, t))")...)
	all := "base.[applied] boolean, base.pk int, base.ck int, base.s text, base.a int, base.b text"
	for _, c := range []struct {
		cql, result string
		lwt         bool
	}{
		{"SELECT * FROM base", "base.pk int, base.ck int, base.s text, base.a int, base.b text", false},
		{
			"SELECT pk, token(pk), writetime(a), ttl(a) FROM base",
			"base.pk int, base.system.token(pk) bigint, base.writetime(a) bigint, base.ttl(a) int", false,
		},
		{"SELECT COUNT(1) FROM kv", "kv.count bigint", false},
		{"SELECT COUNT(*) AS n FROM kv", "kv.n bigint", false},
		{"SELECT toTimestamp(t), toTimestamp(now()) FROM ev", "ev.system.totimestamp(t) timestamp, ev.system.totimestamp(system.now()) timestamp", false},
		{"INSERT INTO base (pk, ck) VALUES (1, 1)", "", false},
		{"INSERT INTO base (pk, ck) VALUES (1, 1) IF NOT EXISTS", all, true},
		{"UPDATE base SET a = 1 WHERE pk = 1 AND ck = 1 IF b = 'x' AND a > 1 AND s != 'no'", "base.[applied] boolean, base.s text, base.a int, base.b text", true},
		{"DELETE FROM base WHERE pk = 1 AND ck = 1 IF EXISTS", all, true},
		{
			"BEGIN BATCH UPDATE base SET a = 1 WHERE pk = 1 AND ck = 1 IF a = 2; UPDATE base SET b = 'q' WHERE pk = 1 AND ck = 1; APPLY BATCH",
			"base.[applied] boolean, base.pk int, base.ck int, base.a int", false,
		},
	} {
		p := n.mustPlan(c.cql)
		if got := specs(p.Result); got != c.result {
			t.Errorf("%s\nresult %s\n  want %s", c.cql, got, c.result)
		}
		if p.LWT != c.lwt {
			t.Errorf("%s: LWT = %v, want %v", c.cql, p.LWT, c.lwt)
		}
	}
}
