package engine_test

import (
	"context"
	"errors"
	"testing"
)

func insertPlain(n *node) {
	for ck := range 10 {
		n.play(step{"INSERT INTO plain (pk, ck, v, w) VALUES (1, " + itoa(ck+1) + ", " + itoa(ck+1) + ", 'x')", ""})
	}
}

func TestSelect_RowsAndStatics(t *testing.T) {
	t.Parallel()
	n := setup(t, usualTables...)
	n.play(
		step{"INSERT INTO plain (pk, ck, s, v, w) VALUES (5, 1, 7, 8, 'z')", ""},
		step{"INSERT INTO plain (pk, ck, v) VALUES (5, 2, 9)", ""},
		step{"INSERT INTO plain (pk, s) VALUES (6, 9)", ""},
		step{"SELECT * FROM plain", "5 1 7 8 'z' | 5 2 7 9 null | 6 null 9 null null"},
		step{"SELECT DISTINCT pk, s FROM plain", "5 7 | 6 9"},
		step{"SELECT DISTINCT pk FROM plain", "5 | 6"},
		step{"SELECT v AS x, token(pk) FROM plain WHERE pk = 5", "8 -7509452495886106294 | 9 -7509452495886106294"},
		step{"SELECT w, w, v AS w FROM plain WHERE pk = 5", "'z' 'z' 8 | null null 9"},
		step{"SELECT * FROM plain WHERE pk = 777", "none"},
		step{"SELECT ck, v FROM plain WHERE pk = 6", "null null"},
		step{"SELECT * FROM plain WHERE pk = 6 AND ck = 1", "none"},
		step{"SELECT * FROM plain WHERE pk = 6 AND ck > 0", "none"},
		step{"SELECT * FROM kv WHERE k = null", "none"},
		step{"SELECT * FROM kv WHERE k = 1 AND k = 2", "none"},
	)
}

func TestSelect_Count(t *testing.T) {
	t.Parallel()
	n := setup(t, usualTables...)
	n.play(
		step{"INSERT INTO plain (pk, ck, s, v, w) VALUES (5, 1, 7, 8, 'z')", ""},
		step{"INSERT INTO plain (pk, ck, v) VALUES (5, 2, 9)", ""},
		step{"INSERT INTO plain (pk, s) VALUES (6, 9)", ""},
		step{"SELECT COUNT(*) FROM plain", "3"},
		step{"SELECT COUNT(*) FROM plain WHERE token(pk) > 10 AND token(pk) < 5", "0"},
	)
}

func TestSelect_InAndTokens(t *testing.T) {
	t.Parallel()
	n := setup(t, append(usualTables,
		"CREATE TABLE two (a int, b text, c int, PRIMARY KEY ((a, b), c))",
		"CREATE TABLE three (a int, b text, c blob, PRIMARY KEY ((a, b, c)))",
		"CREATE TABLE bl (k blob PRIMARY KEY, v int)")...)
	n.play(
		step{"BEGIN UNLOGGED BATCH INSERT INTO plain (pk, ck) VALUES (1, 1) INSERT INTO plain (pk, ck) VALUES (1, 2) INSERT INTO plain (pk, ck) VALUES (2, 1) INSERT INTO plain (pk, ck) VALUES (3, 1) APPLY BATCH", ""},
		step{"SELECT pk, ck FROM plain WHERE pk IN (3, 1, 2, 1)", "1 1 | 1 2 | 2 1 | 3 1"},
		step{"SELECT pk, ck FROM plain WHERE pk IN ()", "none"},
		step{"SELECT pk, ck FROM plain WHERE pk IN (null)", "2200 null is not supported inside collections"},
		step{"SELECT pk, ck FROM plain WHERE pk IN (1, 2) AND pk IN (2, 3)", "2 1"},
		step{"SELECT pk, ck FROM plain WHERE pk IN (2, 1) AND ck IN (2, 1) LIMIT 2", "1 1 | 1 2"},
		step{"BEGIN UNLOGGED BATCH INSERT INTO two (a, b, c) VALUES (1, 'x', 1) INSERT INTO two (a, b, c) VALUES (1, 'y', 1) INSERT INTO two (a, b, c) VALUES (2, 'x', 1) APPLY BATCH", ""},
		step{"SELECT * FROM two WHERE a IN (2, 1) AND b IN ('y', 'x')", "1 'x' 1 | 1 'y' 1 | 2 'x' 1"},
		step{"INSERT INTO three (a, b, c) VALUES (1, 'x', 0x)", ""},
		step{"SELECT token(a, b, c) FROM three", "-8764560297917365023"},
		step{"BEGIN UNLOGGED BATCH INSERT INTO bl (k) VALUES (0x80) INSERT INTO bl (k) VALUES (0x7f00) INSERT INTO bl (k) VALUES (0x7f) APPLY BATCH", ""},
		step{"SELECT k FROM bl WHERE k IN (0x80, 0x7f00, 0x7f)", "0x7f | 0x7f00 | 0x80"},
		step{"SELECT k FROM bl", "0x80 | 0x7f00 | 0x7f"},
	)
	for k := range 12 {
		n.play(step{"INSERT INTO kv (k) VALUES (" + itoa(k) + ")", ""})
	}
	n.play(
		step{"SELECT k FROM kv WHERE token(k) > -4069959284402364209 AND token(k) <= -3485513579396041028", "8 | 0"},
		step{"SELECT k FROM kv WHERE token(k) >= -4069959284402364209 AND token(k) < -3485513579396041028", "1 | 8"},
		step{"SELECT k FROM kv WHERE token(k) > 10 AND token(k) < 5", "none"},
		step{"SELECT COUNT(*) FROM kv WHERE token(k) <= -9223372036854775808", "12"},
		step{"SELECT COUNT(*) FROM kv WHERE token(k) > 9223372036854775807", "0"},
		step{"SELECT k FROM kv WHERE token(k) > token(3)", "none"},
		step{"SELECT k FROM kv WHERE token(k) = -4069959284402364209", "1"},
	)
}

func TestSelect_OrderAndRanges(t *testing.T) {
	t.Parallel()
	n := setup(t, append(usualTables,
		"CREATE TABLE mc (p int, c1 int, c2 int, v int, PRIMARY KEY (p, c1, c2)) WITH CLUSTERING ORDER BY (c1 ASC, c2 DESC)")...)
	for i := range 5 {
		n.play(step{"INSERT INTO base (pk, ck, a) VALUES (1, " + itoa(i+1) + ", 0)", ""})
	}
	for i := range 6 {
		n.play(step{"INSERT INTO mc (p, c1, c2) VALUES (1, " + itoa(1+i/3) + ", " + itoa(1+i%3) + ")", ""})
	}
	n.play(
		step{"SELECT ck FROM base WHERE pk = 1", "5 | 4 | 3 | 2 | 1"},
		step{"SELECT ck FROM base WHERE pk = 1 ORDER BY ck ASC", "1 | 2 | 3 | 4 | 5"},
		step{"SELECT ck FROM base WHERE pk = 1 AND ck > 2 AND ck <= 4", "4 | 3"},
		step{"SELECT ck FROM base WHERE pk = 1 AND ck > 2 AND ck <= 5 ORDER BY ck LIMIT 2", "3 | 4"},
		step{"SELECT ck FROM base WHERE pk = 1 AND ck IN (1, 5, 3)", "5 | 3 | 1"},
		step{"SELECT ck FROM base WHERE pk = 1 AND ck > 4 AND ck < 2", "none"},
		step{"SELECT ck FROM base WHERE pk = 1 AND ck >= 3 AND ck <= 3", "3"},
		step{"SELECT ck FROM base WHERE pk = 1 AND ck > null", "none"},
		step{"SELECT ck FROM base WHERE pk = 1 AND (ck) > (3)", "5 | 4"},
		step{"SELECT c1, c2 FROM mc WHERE p = 1", "1 3 | 1 2 | 1 1 | 2 3 | 2 2 | 2 1"},
		step{"SELECT c1, c2 FROM mc WHERE p = 1 ORDER BY c1 DESC", "2 1 | 2 2 | 2 3 | 1 1 | 1 2 | 1 3"},
		step{"SELECT c1, c2 FROM mc WHERE p = 1 ORDER BY c1 DESC, c2 ASC LIMIT 1", "2 1"},
		step{"SELECT c1, c2 FROM mc WHERE p = 1 AND c1 = 2 ORDER BY c2 ASC", "2 1 | 2 2 | 2 3"},
		step{"SELECT c1, c2 FROM mc WHERE p = 1 AND c1 IN (1, 2) AND c2 < 3", "1 2 | 1 1 | 2 2 | 2 1"},
	)
}

func TestSelect_Filtering(t *testing.T) {
	t.Parallel()
	n := setup(t, usualTables...)
	insertPlain(n)
	n.play(
		step{"SELECT ck FROM plain WHERE v > 8 ALLOW FILTERING", "9 | 10"},
		step{"SELECT ck FROM plain WHERE pk > 0 AND v = 2 ALLOW FILTERING", "2"},
		step{"SELECT ck FROM plain WHERE v IN (3, 4) AND w = 'x' ALLOW FILTERING", "3 | 4"},
		step{"SELECT ck FROM plain WHERE v = null ALLOW FILTERING", "none"},
		step{"SELECT ck FROM plain WHERE s = 1 ALLOW FILTERING", "none"},
		step{"SELECT COUNT(*) FROM plain WHERE v > 3 ALLOW FILTERING", "7"},
	)
	res, err := n.run("SELECT * FROM plain WHERE ck = 1")
	if err != nil || len(res.Warnings) != 1 {
		t.Errorf("clustering key without partition key: Warnings, error = %q, %v, want one warning", res.Warnings, err)
	}
}

func TestSelect_Cancelled(t *testing.T) {
	t.Parallel()
	n := setup(t, usualTables...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.engine.Execute(ctx, n.mustPlan("SELECT * FROM kv"), n.params); !errors.Is(err, context.Canceled) {
		t.Errorf("Execute() error = %v, want context.Canceled", err)
	}
}
