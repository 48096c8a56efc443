package scyllafake

import (
	"testing"

	"github.com/datastax/go-cassandra-native-protocol/message"
	"github.com/datastax/go-cassandra-native-protocol/primitive"
)

// A feature of ScyllaDB that the server lacks is refused by its name, by QUERY and by
// PREPARE.
func TestServer_UnsupportedFeatures(t *testing.T) {
	t.Parallel()
	c := dialStarted(t, setup(t))
	createKeyspace(c)
	c.exec("CREATE TABLE ks.t (p int, c int, v int, w text, l list<int>, m map<text, int>, PRIMARY KEY (p, c))")
	c.exec("CREATE TABLE ks.mixed (p int, a int, b int, PRIMARY KEY (p, a, b)) WITH CLUSTERING ORDER BY (a ASC, b DESC)")
	c.exec("CREATE TABLE ks.pairs (p int PRIMARY KEY, v tuple<int, text>, d duration, f double)")
	features := map[string][]string{
		"ORDER BY of several partitions":           {"SELECT * FROM ks.t WHERE p IN (1, 2) ORDER BY c DESC"},
		"a range over columns of different orders": {"SELECT * FROM ks.mixed WHERE p = 1 AND (a, b) > (1, 2)", "DELETE FROM ks.mixed WHERE p = 1 AND (a, b) >= (1, 2)"},
		"secondary indexes": {
			"CREATE INDEX ON ks.t (v)", "CREATE INDEX IF NOT EXISTS i ON ks.t ((p), v)", "CREATE CUSTOM INDEX i ON ks.t (v) USING 'C'", "DROP INDEX ks.i",
		},
		"materialized views": {
			"CREATE MATERIALIZED VIEW ks.v AS SELECT * FROM ks.t WHERE p IS NOT NULL AND c IS NOT NULL PRIMARY KEY (c, p)",
			"ALTER MATERIALIZED VIEW ks.v WITH comment = ''", "DROP MATERIALIZED VIEW IF EXISTS ks.v", "PRUNE MATERIALIZED VIEW ks.v",
		},
		"user-defined types": {
			"CREATE TYPE ks.u (x int)", "ALTER TYPE ks.u ADD y int", "DROP TYPE ks.u", "UPDATE ks.t SET v.x = 1 WHERE p = 1 AND c = 1",
			"DELETE v.x FROM ks.t WHERE p = 1 AND c = 1", "SELECT v.x FROM ks.t", "INSERT INTO ks.t (p, c, w) VALUES (1, 1, {x: 1})",
			"CREATE TABLE ks.o (p int PRIMARY KEY, v frozen<ks.u>)",
		},
		"user-defined functions and aggregates": {
			"CREATE FUNCTION ks.f (a int) RETURNS NULL ON NULL INPUT RETURNS int LANGUAGE lua AS 'x'", "CREATE OR REPLACE FUNCTION ks.f () RETURNS int",
			"DROP FUNCTION ks.f", "CREATE AGGREGATE ks.a(int) SFUNC f STYPE int", "DROP AGGREGATE ks.a",
		},
		"service levels":        {"CREATE SERVICE LEVEL sl", "ALTER SERVICE_LEVEL sl", "DROP SERVICE LEVEL sl", "ATTACH SERVICE LEVEL sl TO r", "LIST SERVICE_LEVEL sl"},
		"roles and permissions": {"CREATE ROLE r WITH LOGIN = true", "ALTER USER u", "DROP ROLE r", "GRANT SELECT ON ks.t TO r", "REVOKE ALL ON ks.t FROM r", "LIST ROLES"},
		"JSON":                  {"SELECT JSON * FROM ks.t", `INSERT INTO ks.t JSON '{"p": 1}'`},
		"GROUP BY":              {"SELECT p FROM ks.t GROUP BY p"},
		"CAST":                  {"SELECT CAST(v AS text) FROM ks.t"},
		"type hints":            {"INSERT INTO ks.t (p, c) VALUES (1, (int)1)"},
		"IS NOT NULL":           {"SELECT * FROM ks.t WHERE v IS NOT NULL ALLOW FILTERING"},
		"LIKE":                  {"SELECT * FROM ks.t WHERE w LIKE 'x%' ALLOW FILTERING", "UPDATE ks.t SET v = 1 WHERE p = 1 AND c = 1 IF w LIKE 'x%'"},
		"CONTAINS":              {"SELECT * FROM ks.t WHERE l CONTAINS 1 ALLOW FILTERING", "SELECT * FROM ks.t WHERE m CONTAINS KEY 'a' ALLOW FILTERING"},
		"elements of collections in WHERE": {
			"SELECT * FROM ks.t WHERE m['a'] = 1 ALLOW FILTERING",
		},
		"count(*) beside other selectors":                          {"SELECT p, count(*) FROM ks.t"},
		"token() of other columns than those of the partition key": {"SELECT token(p, c) FROM ks.t", "SELECT token(c) FROM ks.t"},
		"the function max()":                                       {"SELECT max(v) FROM ks.t"},
		"the function count()":                                     {"SELECT count(v) FROM ks.t"},
		"the function tojson()":                                    {"SELECT toJson(v) FROM ks.t"},
		"the function blobasint()":                                 {"INSERT INTO ks.t (p, c) VALUES (1, blobAsInt(0x01))"},
		"the function f()":                                         {"SELECT ks.f(v) FROM ks.t"},
		"a value of type duration written as text":                 {"INSERT INTO ks.pairs (p, d) VALUES (1, 1h)", "UPDATE ks.pairs SET d = 12h30m WHERE p = 1"},
		"elements of a list by their index": {
			"UPDATE ks.t SET l[0] = 1 WHERE p = 1 AND c = 1", "UPDATE ks.t SET l[?] = ? WHERE p = 1 AND c = 1", "DELETE l[0] FROM ks.t WHERE p = 1 AND c = 1",
		},
		"the removal of elements of a list by their value":                      {"UPDATE ks.t SET l = l - [1] WHERE p = 1 AND c = 1"},
		"elements before the first one of a list":                               {"UPDATE ks.t SET l = [1] + l WHERE p = 1 AND c = 1"},
		"a clustering column of type decimal":                                   {"CREATE TABLE ks.o (p int, c decimal, PRIMARY KEY (p, c))"},
		"a clustering column of type frozen<list<int>>":                         {"CREATE TABLE ks.o (p int, c frozen<list<int>>, PRIMARY KEY (p, c))"},
		"sets and maps by values of type varint":                                {"CREATE TABLE ks.o (p int PRIMARY KEY, s set<varint>)", "ALTER TABLE ks.t ADD s frozen<map<varint, int>>"},
		"the order of values of type double":                                    {"SELECT * FROM ks.pairs WHERE f > 1 ALLOW FILTERING", "UPDATE ks.pairs SET f = 2 WHERE p = 1 IF f < 1"},
		"elements of collections in IF":                                         {"UPDATE ks.t SET v = 1 WHERE p = 1 AND c = 1 IF m['a'] = 1", "DELETE v FROM ks.t WHERE p = 1 AND c = 1 IF l[0] = 1"},
		"= and IN of several columns":                                           {"SELECT * FROM ks.mixed WHERE p = 1 AND (a, b) = (1, 2)", "SELECT * FROM ks.mixed WHERE p = 1 AND (a, b) IN ((1, 2), (3, 4))", "SELECT * FROM ks.mixed WHERE p = 1 AND (a, b) IN ?"},
		"a bind marker for several columns":                                     {"SELECT * FROM ks.mixed WHERE p = 1 AND (a, b) > ?"},
		"tuples as constants":                                                   {"INSERT INTO ks.pairs (p, v) VALUES (1, (1, 'x'))"},
		"the function uuid()":                                                   {"SELECT uuid() FROM ks.t", "INSERT INTO ks.t (p, c) VALUES (uuid(), 1)"},
		"the function mintimeuuid()":                                            {"SELECT * FROM ks.t WHERE p = 1 AND c > minTimeuuid('2020-01-01')"},
		"USING TIMEOUT ?, a timeout that is not written as a number and a unit": {"SELECT * FROM ks.t USING TIMEOUT ?", "DELETE FROM ks.t USING TIMEOUT ? WHERE p = 1"},
		"counters":        {"CREATE TABLE ks.o (p int PRIMARY KEY, n counter)", "ALTER TABLE ks.t ADD n counter"},
		"COMPACT STORAGE": {"CREATE TABLE ks.o (p int PRIMARY KEY) WITH COMPACT STORAGE"},
		"ALTER KEYSPACE":  {"ALTER KEYSPACE ks WITH durable_writes = false", "ALTER SCHEMA ks WITH durable_writes = false"},
		"the CDC option preimage": {
			"CREATE TABLE ks.o (p int PRIMARY KEY, v int) WITH cdc = {'enabled': true, 'preimage': true}", "ALTER TABLE ks.t WITH cdc = {'enabled': true, 'preimage': 'full'}",
		},
		"the CDC option postimage":    {"CREATE TABLE ks.o (p int PRIMARY KEY, v int) WITH cdc = {'enabled': true, 'postimage': true}"},
		"RENAME":                      {"ALTER TABLE ks.t RENAME c TO d"},
		"a change of a column's type": {"ALTER TABLE ks.t ALTER v TYPE varint"},
		"SCYLLA_TIMEUUID_LIST_INDEX":  {"UPDATE ks.t SET l[SCYLLA_TIMEUUID_LIST_INDEX(?)] = 1 WHERE p = 1 AND c = 1"},
		"SCYLLA_COUNTER_SHARD_LIST":   {"UPDATE ks.t SET v = SCYLLA_COUNTER_SHARD_LIST([]) WHERE p = 1 AND c = 1"},
		"SCYLLA_CLUSTERING_BOUND":     {"SELECT * FROM ks.t WHERE p = 1 AND (c) > SCYLLA_CLUSTERING_BOUND (1)"},
		"the type u: it is none of CQL's own, and user-defined types are not imitated": {"CREATE TABLE ks.o (p int PRIMARY KEY, v frozen<u>)"},
	}
	for feature, texts := range features {
		for _, text := range texts {
			want := "scyllafake does not support " + feature
			wantError(t, text, c.query(text), primitive.ErrorCodeInvalid, want)
			switch text[:5] {
			case "CREAT", "ALTER":
				continue // PREPARE does not check types and options
			}
			wantError(t, "PREPARE "+text, c.do(&message.Prepare{Query: text}), primitive.ErrorCodeInvalid, want)
		}
	}
}
