package engine_test

import (
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
)

// Case C12 of the recordings.
func TestBatch_Texts(t *testing.T) {
	t.Parallel()
	n := setup(t, usualTables...)
	n.play(
		step{"BEGIN UNLOGGED BATCH INSERT INTO kv (k, v) VALUES (1, 1); UPDATE kv SET w = 'b' WHERE k = 1; DELETE FROM kv WHERE k = 2; APPLY BATCH", ""},
		step{"SELECT * FROM kv", "1 1 'b'"},
		step{"BEGIN BATCH USING TIMESTAMP 5 INSERT INTO kv (k, v) VALUES (21, 1); INSERT INTO kv (k, v) VALUES (22, 1); APPLY BATCH", ""},
		step{"SELECT k, WRITETIME(v) FROM kv WHERE k IN (21, 22)", "21 5 | 22 5"},
		step{"BEGIN BATCH INSERT INTO kv (k, v) VALUES (3, 1); DELETE FROM kv WHERE k = 3; APPLY BATCH", ""},
		step{"SELECT * FROM kv WHERE k = 3", "none"},
		step{"BEGIN BATCH DELETE FROM kv WHERE k = 3; INSERT INTO kv (k, v) VALUES (3, 1); APPLY BATCH", ""},
		step{"SELECT * FROM kv WHERE k = 3", "none"},
		step{"BEGIN BATCH INSERT INTO kv (k, v) VALUES (4, 1); INSERT INTO kv (k, v) VALUES (4, 2); APPLY BATCH", ""},
		step{"SELECT * FROM kv WHERE k = 4", "4 2 null"},
		step{"BEGIN BATCH APPLY BATCH", ""},
		step{"BEGIN BATCH USING TIMESTAMP 5 INSERT INTO kv (k, v) VALUES (1, 1) USING TIMESTAMP 6; APPLY BATCH", "2200 Timestamp must be set either on BATCH or individual statements"},
		step{"BEGIN BATCH USING TTL 5 INSERT INTO kv (k, v) VALUES (1, 1); APPLY BATCH", "2200 Global TTL on the BATCH statement is not supported."},
		step{"BEGIN COUNTER BATCH INSERT INTO kv (k, v) VALUES (3, 1); APPLY BATCH", "2200 Cannot include non-counter statement in a counter batch"},
	)
	n.params.Consistency = engine.Serial
	n.play(step{"BEGIN BATCH INSERT INTO kv (k, v) VALUES (31, 1); APPLY BATCH", "2200 You must use conditional updates for serializable writes"})
	n.params.Consistency = engine.Two
	n.play(step{"BEGIN BATCH INSERT INTO kv (k, v) VALUES (31, 1); INSERT INTO kv (k, v) VALUES (32, 1); APPLY BATCH", "1000 Cannot achieve consistency level for cl TWO. Requires 2, alive 1"})
	n.params.Consistency = engine.EachQuorum
	n.play(step{"INSERT INTO kv (k, v) VALUES (31, 1)", ""})
}

func TestBatch_Requests(t *testing.T) {
	t.Parallel()
	n := setup(t, append(usualTables, "CREATE TABLE big (k int, c int, w blob, PRIMARY KEY (k, c))")...)
	insert := n.mustPlan("INSERT INTO kv (k, v) VALUES (?, ?)")
	big := n.mustPlan("INSERT INTO big (k, c, w) VALUES (?, ?, ?)")
	item := func(p *engine.Plan, v ...engine.Value) engine.BatchItem { return engine.BatchItem{Plan: p, Values: v} }
	blob := func(size int) engine.Value { return engine.Value{Bytes: make([]byte, size)} }
	for _, c := range []struct {
		name  string
		kind  cql.BatchKind
		items []engine.BatchItem
		want  string
	}{
		{"two partitions", cql.BatchLogged, []engine.BatchItem{item(insert, int32Value(1), int32Value(1)), item(insert, int32Value(2), int32Value(2))}, ""},
		{"nothing", cql.BatchLogged, nil, ""},
		{"a SELECT", cql.BatchLogged, []engine.BatchItem{item(n.mustPlan("SELECT * FROM kv"))}, "2200 Invalid statement in batch: only UPDATE, INSERT and DELETE statements are allowed."},
		{"too few values", cql.BatchLogged, []engine.BatchItem{item(insert, int32Value(1))}, "2200 There were 2 markers(?) in CQL but 1 bound variables"},
		{"null key", cql.BatchLogged, []engine.BatchItem{item(insert, nullValue, int32Value(1))}, "2200 Invalid null value in condition for a key column"},
		{"unset key", cql.BatchLogged, []engine.BatchItem{item(insert, unsetValue, int32Value(1))}, ""},
		{"unset value", cql.BatchLogged, []engine.BatchItem{item(insert, int32Value(7), unsetValue)}, ""},
		{"counter batch", cql.BatchCounter, []engine.BatchItem{item(insert, int32Value(9), int32Value(1))}, "2200 Cannot include non-counter statement in a counter batch"},
		{"too large", cql.BatchLogged, []engine.BatchItem{item(big, int32Value(1), int32Value(1), blob(600_000)), item(big, int32Value(2), int32Value(1), blob(600_000))}, "2200 Batch too large"},
		{"too large, unlogged", cql.BatchUnlogged, []engine.BatchItem{item(big, int32Value(1), int32Value(1), blob(600_000)), item(big, int32Value(2), int32Value(1), blob(600_000))}, "2200 Batch too large"},
		{"large, one partition", cql.BatchLogged, []engine.BatchItem{item(big, int32Value(3), int32Value(1), blob(600_000)), item(big, int32Value(3), int32Value(2), blob(600_000))}, ""},
		{
			"own timestamps", cql.BatchLogged,
			[]engine.BatchItem{item(n.mustPlan("INSERT INTO kv (k, v) VALUES (10, 1) USING TIMESTAMP 6000")), item(insert, int32Value(11), int32Value(1))},
			"",
		},
	} {
		params := n.params
		params.Timestamp, params.HasTimestamp = 5000, true
		res, err := n.engine.ExecuteBatch(t.Context(), c.kind, c.items, params)
		if got := show(t, res, err); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	n.play(
		step{"SELECT k, v, WRITETIME(v) FROM kv WHERE k IN (1, 2, 7, 10, 11)", "1 1 5000 | 2 2 5000 | 7 null null | 10 1 6000 | 11 1 5000"},
		step{"SELECT k, c FROM big", "3 1 | 3 2"},
	)
}

// One mutation per partition: the log shows one group with continuous
// numbers, in clustering order (case E7 of the recordings).
func TestBatch_OneLogGroupPerPartition(t *testing.T) {
	t.Parallel()
	n := setup(t, usualTables...)
	log := `SELECT "cdc$batch_seq_no", "cdc$operation", ck, a, b, "cdc$end_of_batch" FROM base_scylla_cdc_log`
	for _, c := range []struct{ cql, want string }{
		{
			"BEGIN BATCH INSERT INTO base (pk, ck, a) VALUES (301, 3, 3); INSERT INTO base (pk, ck, a) VALUES (301, 1, 1); UPDATE base SET a = 2 WHERE pk = 301 AND ck = 2; APPLY BATCH",
			"0 2 3 3 null null | 1 1 2 2 null null | 2 2 1 1 null true",
		},
		{
			"BEGIN BATCH UPDATE base SET a = 1 WHERE pk = 302 AND ck = 1; UPDATE base SET b = 'x' WHERE pk = 302 AND ck = 1; APPLY BATCH",
			"0 1 1 1 'x' true",
		},
		{
			"BEGIN BATCH DELETE FROM base WHERE pk = 308 AND ck > 1; DELETE FROM base WHERE pk = 308 AND ck = 1; INSERT INTO base (pk, ck, a) VALUES (308, 9, 1); APPLY BATCH",
			"0 2 9 1 null null | 1 3 1 null null null | 2 5 null null null null | 3 8 1 null null true",
		},
		{
			"BEGIN BATCH DELETE a FROM base WHERE pk = 309 AND ck = 1; UPDATE base SET a = 5 WHERE pk = 309 AND ck = 1; APPLY BATCH",
			"0 1 1 null null true",
		},
		{
			"BEGIN BATCH DELETE FROM base WHERE pk = 333 AND ck < 3; DELETE FROM base WHERE pk = 333 AND ck > 1; APPLY BATCH",
			"0 5 null null null null | 1 7 null null null true",
		},
	} {
		n.play(step{c.cql, ""}, step{log, c.want})
		n.ddl("TRUNCATE base_scylla_cdc_log")
	}
}
