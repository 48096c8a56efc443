package engine_test

import (
	"strconv"
	"testing"
)

func itoa(i int) string { return strconv.Itoa(i) }

const needsFiltering = "Cannot execute this query as it might involve data filtering and thus may have unpredictable performance. If you want to execute this query despite the performance unpredictability, use ALLOW FILTERING"

// The messages match the recordings, mostly case B7.
func TestSelect_Refusals(t *testing.T) {
	t.Parallel()
	n := setup(t, append(usualTables,
		"CREATE TABLE mc (p int, c1 int, c2 int, v int, PRIMARY KEY (p, c1, c2)) WITH CLUSTERING ORDER BY (c1 ASC, c2 DESC)",
		"CREATE TABLE two (a int, b text, c int, PRIMARY KEY ((a, b), c))")...)
	refusals(t, n, []step{
		{"SELECT * FROM nosuch", "unconfigured table nosuch"},
		{"SELECT * FROM nosuch.t", "Keyspace nosuch does not exist"},
		{"SELECT nosuch FROM kv", "Undefined name nosuch in selection clause"},
		{"SELECT nosuch(k) FROM kv", "scyllafake does not support the function nosuch()"},
		{"SELECT WRITETIME(pk) FROM plain", "Cannot use selection function writeTime on PRIMARY KEY part 706b"},
		{"SELECT DISTINCT ck FROM plain", "SELECT DISTINCT queries must only request partition key columns and/or static columns (not ck)"},
		{"SELECT * FROM kv WHERE v = 1", needsFiltering},
		{"SELECT * FROM two WHERE a = 2", needsFiltering},
		{"SELECT * FROM kv WHERE k > 1", "Only EQ and IN relation are supported on the partition key (unless you use the token() function or allow filtering)"},
		{"SELECT * FROM kv WHERE k = 'x'", `Invalid STRING constant (x) for "k" of type int`},
		{"SELECT * FROM kv WHERE nosuch = 1", "Undefined name nosuch in where clause ('unresolved(nosuch)')"},
		{"SELECT * FROM plain WHERE v != 1 ALLOW FILTERING", `Unsupported "!=" relation: v != 1`},
		{"SELECT * FROM mc WHERE p = 1 AND c2 = 2", `PRIMARY KEY column "c2" cannot be restricted as preceding column "c1" is not restricted`},
		{"SELECT * FROM mc WHERE p = 1 AND c1 > 0 AND c2 = 2", `Clustering column "c2" cannot be restricted (preceding column "c1" is restricted by a non-EQ relation)`},
		{"SELECT * FROM kv LIMIT 0", "LIMIT must be strictly positive"},
		{"SELECT * FROM base ORDER BY ck", "ORDER BY is only supported when the partition key is restricted by an EQ or an IN."},
		{"SELECT * FROM base WHERE pk = 1 ORDER BY a", "Order by is currently only supported on the clustered columns of the PRIMARY KEY, got a"},
		{"SELECT * FROM mc WHERE p = 1 ORDER BY c1 DESC, c2 DESC", "Unsupported order by relation - only reversing all columns is supported, but column c2 has opposite ordering"},
		{"SELECT * FROM mc WHERE p = 1 ORDER BY c2", "Unsupported order by relation - column c1 doesn't have an ordering or EQ relation."},
		{
			"SELECT * FROM kv WHERE token(k) > 1 AND k = 3",
			`Columns "ColumnDefinition{name=k, type=org.apache.cassandra.db.marshal.Int32Type, kind=PARTITION_KEY, componentIndex=0, droppedAt=-9223372036854775808}" cannot be restricted by both a normal relation and a token relation`,
		},
		{
			"SELECT * FROM kv WHERE token(v) > 1",
			"The token function arguments must be in the partition key order: [ColumnDefinition{name=v, type=org.apache.cassandra.db.marshal.Int32Type, kind=REGULAR, componentIndex=null, droppedAt=-9223372036854775808}]",
		},
		{"SELECT * FROM kv WHERE k = 1 USING TIMEOUT 5us", "Timeout values cannot have granularity finer than milliseconds"},
		{"SELECT * FROM kv WHERE k = 1 USING TIMEOUT -5s", "Timeout values must be non-negative"},
		{"SELECT * FROM kv WHERE k = ?", "Invalid amount of bind variables: expected 1 received 0"},
		{"SELECT * FROM kv WHERE token(k) > token(1, 2)", "Invalid number of arguments in call to function system.token: 1 required but 2 provided"},
		{"SELECT * FROM kv WHERE token(k) > token()", "Invalid number of arguments in call to function system.token: 1 required but 0 provided"},
		{"SELECT toTimestamp() FROM kv", "Invalid number of arguments in call to function system.totimestamp: 1 required but 0 provided"},
	})
}

func TestCartesianProduct_Limit(t *testing.T) {
	t.Parallel()
	n := setup(t, usualTables...)
	list := func(count int) string {
		text := "0"
		for i := 1; i < count; i++ {
			text += ", " + itoa(i)
		}
		return text
	}
	n.play(
		step{"SELECT * FROM plain WHERE pk IN (" + list(100) + ") AND ck IN (" + list(100) + ")", "none"},
		step{"SELECT * FROM plain WHERE pk IN (" + list(101) + ")", "0000 partition-key cartesian product size 101 is greater than maximum 100"},
		step{"SELECT * FROM plain WHERE pk = 1 AND ck IN (" + list(101) + ")", "0000 clustering-key cartesian product size 101 is greater than maximum 100"},
	)
}

func TestModify_Refusals(t *testing.T) {
	t.Parallel()
	n := setup(t, append(usualTables, "CREATE TABLE ev (k int, t timeuuid, l list<int>, b blob, sm smallint, u uuid, PRIMARY KEY (k, t))")...)
	refusals(t, n, []step{
		{"INSERT INTO kv (v) VALUES (1)", "Missing mandatory PRIMARY KEY part k"},
		{"INSERT INTO kv (k, v) VALUES ('x', 1)", `Invalid STRING constant (x) for "k" of type int`},
		{"INSERT INTO kv (k, v) VALUES (null, 1)", "Invalid null value in condition for a key column"},
		{"INSERT INTO kv (k, v) VALUES (1)", "Unmatched column names/values"},
		{"INSERT INTO kv (k, nosuch) VALUES (1, 1)", "Unknown identifier nosuch"},
		{"INSERT INTO kv (k, k) VALUES (1, 1)", "Multiple definitions found for column k"},
		{"INSERT INTO kv (k, v) VALUES (99999999999, 1)", "marshaling error: Value out of range for type org.apache.cassandra.db.marshal.Int32Type: '99999999999'"},
		{"INSERT INTO kv (k, v) VALUES (1, nosuchfunc())", "scyllafake does not support the function nosuchfunc()"},
		{"INSERT INTO nosuch (k) VALUES (1)", "unconfigured table nosuch"},
		{"INSERT INTO plain (pk, v) VALUES (1, 1)", "Missing mandatory PRIMARY KEY part ck"},
		{"INSERT INTO base_scylla_cdc_log (a) VALUES (1)", "Missing mandatory PRIMARY KEY part cdc$time"},
		{"INSERT INTO ev (k, t, l) VALUES (1, now(), ['x'])", "Invalid list literal for l: value 'x' is not of type int"},
		{"INSERT INTO ev (k, t, l) VALUES (1, now(), [null])", "null is not supported inside collections"},
		{"INSERT INTO ev (k, t, sm) VALUES (1, now(), 40000)", "marshaling error: Value out of range for type org.apache.cassandra.db.marshal.ShortType: '40000'"},
		{"INSERT INTO ev (k, t, u) VALUES (1, now(), 'x')", `Invalid STRING constant (x) for "u" of type uuid`},
		{"INSERT INTO ev (k, t, b) VALUES (1, now(), 0x1)", "0000 An hex string representing bytes must have an even length"},
		{"UPDATE plain SET v = 1 WHERE pk = 1", "Missing mandatory PRIMARY KEY part ck"},
		{"UPDATE plain SET v = 1 WHERE pk = 1 AND ck > 1", "Invalid operator in where clause ((ck) > { value: 00000001 })"},
		{"UPDATE plain SET v = 1 WHERE pk = 1 AND ck = 1 AND w = 'x'", needsFiltering},
		{"UPDATE kv SET k = 2 WHERE k = 1", "PRIMARY KEY part k found in SET part"},
		{"UPDATE kv SET nosuch = 2 WHERE k = 1", "Unknown identifier nosuch"},
		{"UPDATE kv SET v = v + 1 WHERE k = 1", "Invalid operation (v = v + 1) for non counter column 76"},
		{"UPDATE plain SET s = 1 WHERE pk = 1 AND ck = 1", "Invalid restrictions on clustering columns since the UPDATE statement modifies only static columns"},
		{"DELETE FROM plain WHERE ck = 1", "Missing mandatory PRIMARY KEY part pk"},
		{"DELETE nosuch FROM plain WHERE pk = 1 AND ck = 1", "Unknown identifier nosuch"},
		{"DELETE v FROM plain WHERE pk = 1", "Primary key column 'ck' must be specified in order to modify column 'v'"},
		{"DELETE pk FROM plain WHERE pk = 1 AND ck = 1", "Invalid identifier pk for deletion (should not be a PRIMARY KEY part)"},
		{"DELETE FROM plain WHERE pk = 1 AND v = 1", needsFiltering},
		{"DELETE FROM kv USING TTL 5 WHERE k = 116", "TTL attribute is not allowed for deletes"},
		{"INSERT INTO kv (k, v) VALUES (1, 1) USING TTL 630720001", "ttl is too large. requested (630720001) maximum (630720000)"},
		{"INSERT INTO kv (k, v) VALUES (1, 1) USING TTL -1", "A TTL must be greater or equal to 0"},
		{"INSERT INTO kv (k, v) VALUES (1, 1) USING TIMESTAMP 99999999999999999", "Cannot provide a timestamp more than 3 days into the future. If this was not intended, make sure the timestamp is in microseconds"},
		{"INSERT INTO kv (k, v) VALUES (1, 1) USING TIMESTAMP -9223372036854775808", "Out of bound timestamp, must be in [-9223372036854775807, 9223372036854775807]"},
	})
}

func TestConditional_Refusals(t *testing.T) {
	t.Parallel()
	n := setup(t, usualTables...)
	const fullKey = "DELETE statements must restrict all PRIMARY KEY columns with equality relations in order to delete non static columns"
	refusals(t, n, []step{
		{"INSERT INTO base (pk, ck) VALUES (50, 3) IF NOT EXISTS USING TIMESTAMP 5", "Cannot provide custom timestamp for conditional updates"},
		{"UPDATE base USING TIMESTAMP 5 SET a = 1 WHERE pk = 50 AND ck = 2 IF EXISTS", "Cannot provide custom timestamp for conditional updates"},
		{"DELETE FROM base WHERE pk = 50 IF EXISTS", fullKey},
		{"DELETE FROM base WHERE pk = 50 AND ck > 1 IF EXISTS", fullKey},
		{"UPDATE base SET a = 1 WHERE pk IN (1, 2) AND ck = 1 IF a = 1", "IN on the partition key is not supported with conditional updates"},
		{"UPDATE kv SET v = 3 WHERE k = 1 IF nosuch = 5", "Unknown identifier nosuch"},
		{"UPDATE kv SET v = 3 WHERE k = 1 IF k = 1", "PRIMARY KEY column 'k' cannot have IF conditions"},
		{"UPDATE kv SET v = 3 WHERE k = 1 IF v = 'x'", `Invalid STRING constant (x) for "v" of type int`},
		{
			"BEGIN BATCH INSERT INTO base (pk, ck) VALUES (61, 1) IF NOT EXISTS; INSERT INTO base (pk, ck) VALUES (62, 1); APPLY BATCH",
			"BATCH with conditions cannot span multiple partitions",
		},
		{
			"BEGIN BATCH INSERT INTO base (pk, ck) VALUES (61, 1) IF NOT EXISTS; INSERT INTO kv (k, v) VALUES (61, 1); APPLY BATCH",
			"BATCH with conditions cannot span multiple tables",
		},
		{
			"BEGIN BATCH USING TIMESTAMP 5 INSERT INTO base (pk, ck) VALUES (61, 1) IF NOT EXISTS; APPLY BATCH",
			"Cannot provide custom timestamp for conditional BATCH",
		},
	})
}
