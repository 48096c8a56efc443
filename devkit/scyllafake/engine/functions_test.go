package engine_test

import (
	"strings"
	"testing"
	"time"
)

// Cases C8 and C14 of the recordings.
func TestFunctions(t *testing.T) {
	t.Parallel()
	n := setup(t, append(usualTables,
		"CREATE TABLE ev (k int, t timeuuid, at timestamp, d date, PRIMARY KEY (k, t))",
		"CREATE TABLE mm (k int PRIMARY KEY, a timeuuid, b timeuuid)",
		"CREATE TABLE num (k int PRIMARY KEY, d decimal, f double, i varint, b bigint, tx text)")...)
	n.play(
		step{"INSERT INTO ev (k, t, at) VALUES (2, 50554d6e-29bb-11e4-b345-feff819cdc9f, '2020-02-29 12:00:00+0000')", ""},
		step{
			"SELECT toTimestamp(t), toUnixTimestamp(t), toDate(t), dateOf(t), unixTimestampOf(t) FROM ev WHERE k = 2",
			"'2014-08-22 05:15:21.134+0000' 1408684521134 '2014-08-22' '2014-08-22 05:15:21.134+0000' 1408684521134",
		},
		step{"SELECT toDate(at), toUnixTimestamp(at), CAST(t AS timestamp), CAST(at AS date) FROM ev WHERE k = 2", "'2020-02-29' 1582977600000 '2014-08-22 05:15:21.134+0000' '2020-02-29'"},
		step{"SELECT MIN(t), MAX(t) FROM ev WHERE k = 2", "50554d6e-29bb-11e4-b345-feff819cdc9f 50554d6e-29bb-11e4-b345-feff819cdc9f"},
		step{"SELECT toDate(d) FROM ev", "2200 Invalid call to function system.todate, none of its type signatures match (known type signatures: system.todate : (timeuuid) -> date, system.todate : (timestamp) -> date)"},
		step{"INSERT INTO mm (k, a, b) VALUES (1, minTimeuuid('2015-07-14 00:00+0000'), maxTimeuuid('2015-07-14 00:00+0000'))", ""},
		step{"SELECT a, b FROM mm", "451fc000-29bb-11e5-8080-808080808080 451fe70f-29bb-11e5-7f7f-7f7f7f7f7f7f"},
		step{"INSERT INTO ev (k, t, at, d) VALUES (1, now(), toTimestamp(now()), toDate(now()))", ""},
		step{"INSERT INTO ev (k, t, at) VALUES (1, now(), currentTimestamp())", ""},
		step{"SELECT COUNT(*) FROM ev WHERE k = 1 AND t <= now()", "2"},
		step{"DELETE FROM ev WHERE k = 1 AND t < maxTimeuuid('2015-07-14')", ""},
		step{"SELECT COUNT(*) FROM ev WHERE k = 1 AND t > maxTimeuuid('2015-07-14')", "2"},
		step{"INSERT INTO kv (k, v, w) VALUES (1, blobAsInt(0x00000005), blobAsText(textAsBlob('y')))", ""},
		step{"SELECT v, w FROM kv", "5 'y'"},
		step{"INSERT INTO kv (k, v) VALUES (1, blobAsInt(0x05))", "2200 marshaling error: Validation failed for type org.apache.cassandra.db.marshal.Int32Type: got 1 bytes"},
		step{"INSERT INTO kv (k, v) VALUES (1, (int)7)", ""},
		step{"SELECT v FROM kv", "7"},
		step{"INSERT INTO kv (k, v) VALUES (1, (text)'x')", "2200 Cannot assign value (text)'x' to v of type int"},
		step{"INSERT INTO num (k, d, f, i, b) VALUES (1, 12.75, 3.9, 300, 65)", ""},
		step{"SELECT CAST(d AS int), CAST(f AS int), CAST(i AS tinyint), CAST(b AS double), CAST(d AS double), CAST(f AS decimal) FROM num", "12 3 44 65 12.75 39E-1"},
		step{"SELECT CAST(b AS text), CAST(tx AS text), CAST(d AS text) FROM num", "'65' null '12.75'"},
		step{"SELECT CAST(tx AS int) FROM num", "2200 text cannot be cast to int"},
	)
	before := time.Now().UnixMilli()
	res, err := n.run("SELECT toUnixTimestamp(now()), currentTimestamp(), now(), now(), uuid(), uuid() FROM kv")
	if err != nil {
		t.Fatal(err)
	}
	row := decodeRows(t, res)[0]
	for i, v := range row[:2] {
		if ms := int64(be(v)); ms < before || ms > time.Now().UnixMilli() {
			t.Errorf("column %d is %d, want the time, %d", i, ms, before)
		}
	}
	if string(row[2]) == string(row[3]) || string(row[4]) == string(row[5]) {
		t.Error("ids repeat within a row")
	}
}

func TestConsistency_Replication(t *testing.T) {
	t.Parallel()
	n := setup(t)
	n.ddl("CREATE KEYSPACE three WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}")
	n.ddl("CREATE KEYSPACE elsewhere WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1}")
	n.ddl("CREATE TABLE three.kv (k int PRIMARY KEY, v int)")
	for _, c := range []struct {
		level string
		cql   string
		want  string
	}{
		{"ONE", "INSERT INTO three.kv (k) VALUES (1)", ""},
		{"ANY", "INSERT INTO three.kv (k) VALUES (1)", ""},
		{"LOCAL_ONE", "SELECT k FROM three.kv", "1"},
		{"TWO", "SELECT k FROM three.kv", "Requires 2, alive 1"},
		{"QUORUM", "SELECT k FROM three.kv", "Requires 2, alive 1"},
		{"LOCAL_QUORUM", "INSERT INTO three.kv (k) VALUES (1)", "Requires 2, alive 1"},
		{"ALL", "INSERT INTO three.kv (k) VALUES (1)", "Requires 3, alive 1"},
		{"ONE", "INSERT INTO three.kv (k) VALUES (1) IF NOT EXISTS", "cl SERIAL. Requires 2, alive 1"},
		{"SERIAL", "SELECT k FROM three.kv WHERE k = 1", "cl SERIAL. Requires 2, alive 1"},
		{"ANY", "SELECT k FROM three.kv", "ANY ConsistencyLevel is only supported for writes"},
		{"EACH_QUORUM", "SELECT k FROM three.kv", "EACH_QUORUM ConsistencyLevel is only supported for writes"},
	} {
		n.params.Consistency = level(t, c.level)
		if got := n.answer(c.cql); !strings.HasSuffix(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s at %s: %q, want %q", c.cql, c.level, got, c.want)
		}
	}
}
