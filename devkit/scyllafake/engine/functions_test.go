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
		"CREATE TABLE ev (k int, t timeuuid, at timestamp, PRIMARY KEY (k, t))")...)
	n.play(
		step{"INSERT INTO ev (k, t, at) VALUES (2, 50554d6e-29bb-11e4-b345-feff819cdc9f, '2020-02-29 12:00:00+0000')", ""},
		step{
			"SELECT toTimestamp(t), system.toTimestamp(t) FROM ev WHERE k = 2",
			"'2014-08-22 05:15:21.134+0000' '2014-08-22 05:15:21.134+0000'",
		},
		step{"INSERT INTO ev (k, t, at) VALUES (1, now(), toTimestamp(now()))", ""},
		step{"INSERT INTO ev (k, t) VALUES (1, now())", ""},
		step{"SELECT toTimestamp(at) FROM ev", "2200 Type error: at of type timestamp cannot be an argument of function system.totimestamp"},
		step{"SELECT COUNT(*) FROM ev WHERE k = 1 AND t <= now()", "2"},
	)
	n.play(step{"INSERT INTO kv (k) VALUES (1)", ""})
	before := time.Now().UnixMilli()
	res, err := n.run("SELECT toTimestamp(now()), now(), now() FROM kv")
	if err != nil {
		t.Fatal(err)
	}
	row := decodeRows(t, res)[0]
	if ms := int64(be(row[0])); ms < before || ms > time.Now().UnixMilli() {
		t.Errorf("now() is %d, want the time, %d", ms, before)
	}
	if string(row[1]) == string(row[2]) {
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
