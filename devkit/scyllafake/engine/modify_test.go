package engine_test

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
)

// The conditions under which a row exists: case C11 of the recordings.
func TestModify_Liveness(t *testing.T) {
	t.Parallel()
	n := setup(t, usualTables...)
	n.play(
		step{"INSERT INTO kv (k) VALUES (120)", ""},
		step{"UPDATE kv SET v = 1 WHERE k = 121", ""},
		step{"UPDATE kv SET v = null WHERE k = 121", ""},
		step{"SELECT * FROM kv WHERE k IN (120, 121)", "120 null null"},
		step{"INSERT INTO kv (k, v) VALUES (123, null)", ""},
		step{"DELETE v FROM kv WHERE k = 123", ""},
		step{"SELECT * FROM kv WHERE k = 123", "123 null null"},
		step{"DELETE FROM kv WHERE k = 123", ""},
		step{"SELECT * FROM kv WHERE k = 123", "none"},
		step{"DELETE FROM kv WHERE k IN (120, 121)", ""},
		step{"SELECT * FROM kv", "none"},
	)
	insertPlain(n)
	n.play(
		step{"INSERT INTO plain (pk, s) VALUES (1, 5)", ""},
		step{"DELETE FROM plain WHERE pk = 1 AND ck > 3 AND ck <= 6", ""},
		step{"DELETE FROM plain WHERE pk = 1 AND ck < 2", ""},
		step{"DELETE FROM plain WHERE pk = 1 AND ck IN (8, 7)", ""},
		step{"SELECT ck, s FROM plain WHERE pk = 1", "2 5 | 3 5 | 9 5 | 10 5"},
		step{"DELETE s FROM plain WHERE pk = 1", ""},
		step{"SELECT ck, s FROM plain WHERE pk = 1", "2 null | 3 null | 9 null | 10 null"},
		step{"DELETE FROM plain WHERE pk = 1 AND ck > 5 AND ck < 5", ""},
		step{"UPDATE plain SET s = 6 WHERE pk = 1", ""},
		step{"DELETE FROM plain WHERE pk = 1 AND ck >= 0", ""},
		step{"SELECT ck, s FROM plain WHERE pk = 1", "null 6"},
		step{"DELETE FROM plain WHERE pk = 1", ""},
		step{"SELECT ck, s FROM plain WHERE pk = 1", "none"},
	)
}

func TestModify_Timestamps(t *testing.T) {
	t.Parallel()
	n := setup(t, usualTables...)
	n.play(
		step{"INSERT INTO kv (k, v) VALUES (100, 1) USING TIMESTAMP 1000", ""},
		step{"INSERT INTO kv (k, v) VALUES (100, 2) USING TIMESTAMP 1000", ""},
		step{"INSERT INTO kv (k, v) VALUES (100, 0) USING TIMESTAMP 999", ""},
		step{"SELECT v, WRITETIME(v) FROM kv WHERE k = 100", "2 1000"},
		step{"DELETE v FROM kv USING TIMESTAMP 1000 WHERE k = 100", ""},
		step{"SELECT * FROM kv WHERE k = 100", "100 null null"},
		step{"INSERT INTO kv (k, v) VALUES (104, 1) USING TIMESTAMP -9223372036854775807", ""},
		step{"SELECT WRITETIME(v) FROM kv WHERE k = 104", "-9223372036854775807"},
	)
	n.params.Timestamp, n.params.HasTimestamp = 2000, true
	n.play(
		step{"INSERT INTO kv (k, v) VALUES (110, 1) USING TIMESTAMP 1000", ""},
		step{"INSERT INTO kv (k, v) VALUES (111, 1)", ""},
		step{"SELECT k, WRITETIME(v) FROM kv WHERE k IN (110, 111)", "110 1000 | 111 2000"},
	)
	n.params.HasTimestamp = false
	server := int64(5_000_000)
	n.params.ServerTimestamp = func() int64 { server++; return server }
	n.play(
		step{"BEGIN UNLOGGED BATCH INSERT INTO kv (k, v) VALUES (1, 1) INSERT INTO kv (k, v) VALUES (2, 1) APPLY BATCH", ""},
		step{"SELECT k, WRITETIME(v) FROM kv WHERE k IN (1, 2)", "1 5000001 | 2 5000001"},
	)
	insert := "INSERT INTO kv (k, v) VALUES (115, ?) USING TIMESTAMP ?"
	for _, c := range []struct {
		value engine.Value
		want  string
	}{{int64Value(77), ""}, {nullValue, "2200 Invalid null value of timestamp"}, {unsetValue, ""}} {
		if got := n.answer(insert, int32Value(1), c.value); got != c.want {
			t.Errorf("USING TIMESTAMP ? with %v = %q, want %q", c.value, got, c.want)
		}
	}
}

func TestModify_TTL(t *testing.T) {
	t.Parallel()
	n := setup(t, append(usualTables, "CREATE TABLE dttl (k int PRIMARY KEY, v int) WITH default_time_to_live = 5")...)
	n.play(
		step{"INSERT INTO kv (k, v) VALUES (110, 1) USING TTL 3", ""},
		step{"UPDATE kv USING TTL 100 SET w = 'x' WHERE k = 110", ""},
		step{"SELECT v, w, TTL(v), TTL(w) FROM kv", "1 'x' 3 100"},
		step{"INSERT INTO dttl (k, v) VALUES (1, 1)", ""},
		step{"INSERT INTO dttl (k, v) VALUES (2, 1) USING TTL 0", ""},
		step{"INSERT INTO dttl (k, v) VALUES (3, 1) USING TTL 50", ""},
		step{"UPDATE dttl SET v = 1 WHERE k = 6", ""},
		step{"SELECT k, TTL(v) FROM dttl WHERE k IN (1, 2, 3, 6)", "1 5 | 2 null | 3 50 | 6 5"},
	)
	for _, c := range []struct {
		value engine.Value
		want  string
	}{{int32Value(7), ""}, {nullValue, "2200 Invalid null value of TTL"}, {unsetValue, ""}} {
		if got := n.answer("INSERT INTO dttl (k, v) VALUES (4, 1) USING TTL ?", c.value); got != c.want {
			t.Errorf("USING TTL ? with %v = %q, want %q", c.value, got, c.want)
		}
	}
	n.skew.Store(int64(10 * time.Second))
	n.play(
		step{"SELECT v, w, TTL(v), TTL(w) FROM kv", "null 'x' null 90"},
		step{"SELECT k, TTL(v) FROM dttl WHERE k IN (1, 2, 3, 6)", "2 null | 3 40"},
	)
}

func TestModify_BoundKeys(t *testing.T) {
	t.Parallel()
	n := setup(t, append(usualTables, "CREATE TABLE comp (a text, b blob, v int, PRIMARY KEY ((a, b)))", "CREATE TABLE bl (k blob PRIMARY KEY, v int)")...)
	insert := "INSERT INTO plain (pk, ck, v) VALUES (?, ?, ?)"
	for _, c := range []struct {
		name   string
		values []engine.Value
		want   string
	}{
		{"values", []engine.Value{int32Value(1), int32Value(2), int32Value(3)}, ""},
		{"zero-length clustering", []engine.Value{int32Value(1), {Bytes: []byte{}}, int32Value(4)}, ""},
		{"unset value", []engine.Value{int32Value(1), int32Value(2), unsetValue}, ""},
		{"unset partition key", []engine.Value{unsetValue, int32Value(7), int32Value(3)}, ""},
		{"unset clustering key", []engine.Value{int32Value(1), unsetValue, int32Value(3)}, ""},
		{"null clustering key", []engine.Value{int32Value(1), nullValue, int32Value(3)}, "2200 Invalid null value in condition for a key column"},
		{
			"bad length",
			[]engine.Value{int32Value(1), int32Value(1), {Bytes: []byte{1}}},
			"2200 Exception while binding column v: marshaling error: Validation failed for type org.apache.cassandra.db.marshal.Int32Type: got 1 bytes",
		},
	} {
		if got := n.answer(insert, c.values...); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	n.play(step{"SELECT pk, ck, v FROM plain", "1 0x 4 | 1 2 3"})

	if got := n.answer("INSERT INTO bl (k, v) VALUES (?, 1)", engine.Value{Bytes: []byte{}}); got != "2200 Key may not be empty" {
		t.Errorf("empty single key: %q", got)
	}
	if got := n.answer("INSERT INTO comp (a, b, v) VALUES (?, ?, 1)", textValue(""), engine.Value{Bytes: []byte{}}); got != "" {
		t.Errorf("empty parts of a composite key: %q", got)
	}
	n.play(step{"SELECT * FROM comp WHERE a = '' AND b = 0x", "'' 0x 1"})

	for _, c := range []struct {
		value engine.Value
		want  string
	}{
		{nullValue, "none"},
		{unsetValue, "none"},
		{engine.Value{Bytes: []byte{}}, "none"},
		{engine.Value{Bytes: []byte{1}}, "2200 Exception while binding column pk: marshaling error: Validation failed for type org.apache.cassandra.db.marshal.Int32Type: got 1 bytes"},
	} {
		if got := n.answer("SELECT * FROM plain WHERE pk = ?", c.value); got != c.want {
			t.Errorf("SELECT with key %v: %q, want %q", c.value, got, c.want)
		}
	}
}
