package cql

import (
	"errors"
	"testing"
)

// These messages are a node's own, or follow the grammar by the rules in errors.go.
func TestParse_Errors(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"SELEC 1":                                                "line 1:0 no viable alternative at input 'SELEC'",
		"\n\n  FOO":                                              "line 3:2 no viable alternative at input 'FOO'",
		";":                                                      "line 1:0 no viable alternative at input ';'",
		"SELECT * FROM t WHERE":                                  "line 1:0 no viable alternative at input '<EOF>'",
		"SELECT *\nFROM t WHERE":                                 "line 2:0 no viable alternative at input '<EOF>'",
		"SELECT * FORM t":                                        "line 1:9 missing K_FROM at '<missing '",
		"SELECT a FORM t":                                        "line 1:7 no viable alternative at input 'a'",
		"SELECT * FROM t x":                                      "line 1:16 extraneous input 'x' expecting <invalid>",
		"SELECT * FROM t; SELECT * FROM t":                       "line 1:17  : syntax error...\n",
		"SELECT * FROM t LIMIT 'it''s'":                          "line 1:22 no viable alternative at input 'it's'",
		"SELECT * FROM t WHERE a":                                "line 1:22 no viable alternative at input 'a'",
		"SELECT * FROM t WHERE a = b":                            "line 1:0 no viable alternative at input '<EOF>'",
		"SELECT COUNT(2) FROM t":                                 "Only COUNT(1) is supported, got COUNT(2)",
		"UPDATE t SET a = 1":                                     "line 1:0  : syntax error...\n",
		"UPDATE t SET a += 1 WHERE k = 1":                        "line 1:15 no viable alternative at input '+'",
		"UPDATE t SET a = b + 1 WHERE k = 1":                     "Only expressions of the form X = X +<value> are supported.",
		"UPDATE t SET a = 1 WHERE k = 1 IF NOT EXISTS":           "line 1:34 no viable alternative at input 'NOT'",
		"UPDATE t SET a = 1 WHERE k = 1 IF c CONTAINS 1":         "line 1:36 no viable alternative at input 'CONTAINS'",
		"UPDATE t SET a = 1 WHERE k = 1 IF c = 1 OR c = 1":       "line 1:40  : syntax error...\n",
		"INSERT INTO t VALUES (1)":                               "line 1:14 no viable alternative at input 'VALUES'",
		"INSERT INTO t (a) VALUES (1) USING TTL 5 IF NOT EXISTS": "line 1:41  : syntax error...\n",
		"INSERT INTO t (a) VALUES (1,)":                          "line 1:28 no viable alternative at input ')'",
		"INSERT INTO t (a) VALUES ({a})":                         "line 1:26 no viable alternative at input '{'",
		"INSERT INTO ? (a) VALUES (1)":                           "Bind variables cannot be used for table names",
		"BEGIN BATCH SELECT * FROM t APPLY BATCH":                "line 1:12  : syntax error...\n",
		"BEGIN BATCH APPLY":                                      "line 1:0  : syntax error...\n",
		"CREATE":                                                 "line 1:0 no viable alternative at input 'CREATE'",
		"CREATE TABLE t (a int PRIMARY KEY, PRIMARY KEY((a)) WITH comment = ''": "line 1:52 missing ')' at '<missing '",
		"CREATE TABLE t (a int) WITH a = 1 AND A = 2":                           "Multiple definition for property 'a'",
		"CREATE KEYSPACE k":            "line 1:0  : syntax error...\n",
		"CREATE KEYSPACE k WITH a = b": "line 1:27 no viable alternative at input 'b'",
		"DESCRIBE TABLES":              "line 1:0 no viable alternative at input 'DESCRIBE'",
	}
	for text, want := range tests {
		_, err := Parse(text)
		var syntax *SyntaxError
		if !errors.As(err, &syntax) {
			t.Errorf("Parse(%q) error = %v, want a SyntaxError", text, err)
			continue
		}
		if syntax.Message != want {
			t.Errorf("Parse(%q) error = %q, want %q", text, syntax.Message, want)
		}
	}
}
