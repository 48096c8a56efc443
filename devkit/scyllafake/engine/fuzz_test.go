package engine_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
)

// Whatever the statement and the values, the answer is a result or an error of CQL.
func FuzzExecute(f *testing.F) {
	for _, s := range []string{
		"SELECT * FROM plain WHERE pk = ? AND ck > ? LIMIT ? ALLOW FILTERING",
		"SELECT * FROM mc WHERE p IN (1, ?) AND (c1, c2) > (?, 2) AND (c1) < (5) ORDER BY c1 DESC",
		"SELECT * FROM mc WHERE p = 1 AND (c1, c2) IN ((1, 2), ?)",
		"INSERT INTO col (k, l, se, m, tu) VALUES (?, [1, ?], {'a'}, {'b': ?}, (1, 'x')) USING TTL ? AND TIMESTAMP ?",
		"UPDATE col SET l = l + ?, m['k'] = ?, se = se - {'a'}, l[0] = 4 WHERE k = 1 IF l[0] = ? AND m['a'] != null",
		"DELETE l[?], m['a'] FROM col WHERE k IN (1, 2)",
		"DELETE FROM mc USING TIMESTAMP 5 WHERE p = 1 AND (c1, c2) >= (1, 2) AND (c1, c2) <= (3, ?)",
		"INSERT INTO base (pk, ck, s, a) VALUES (1, 1, 'x', 2) IF NOT EXISTS",
		"BEGIN BATCH USING TIMESTAMP ? INSERT INTO base (pk, ck) VALUES (1, ?) UPDATE kv SET v = ? WHERE k = 1 APPLY BATCH",
		"BEGIN BATCH UPDATE base SET a = 1 WHERE pk = 1 AND ck = 1 IF a = 2 DELETE FROM base WHERE pk = 1 AND ck > 1 APPLY BATCH",
		"SELECT * FROM base_scylla_cdc_log WHERE \"cdc$stream_id\" IN ? AND \"cdc$time\" > minTimeuuid('2020-01-01') AND \"cdc$time\" <= now()",
	} {
		f.Add(s, []byte("\x00\x00\x00\x01"), uint8(0))
		f.Add(s, []byte(nil), uint8(1))
	}
	n := setup(f, append(usualTables, "CREATE TABLE col (k int PRIMARY KEY, l list<int>, se set<text>, m map<text, int>, tu tuple<int, text>)",
		"CREATE TABLE mc (p int, c1 int, c2 int, v int, PRIMARY KEY (p, c1, c2)) WITH CLUSTERING ORDER BY (c1 ASC, c2 DESC)")...)
	n.play(
		step{"INSERT INTO col (k, l, m) VALUES (1, [1, 2, 3], {'a': 1})", ""},
		step{"INSERT INTO plain (pk, ck, s, v) VALUES (1, 1, 1, 1)", ""},
		step{"INSERT INTO mc (p, c1, c2) VALUES (1, 1, 1)", ""},
	)
	f.Fuzz(func(t *testing.T, text string, value []byte, how uint8) {
		if strings.Count(text, "(") > 200 {
			return
		}
		p, err := n.plan(text)
		if err == nil {
			params := n.params
			params.PageSize = int32(how) % 5
			for i := range p.Binds {
				v := engine.Value{Bytes: value}
				switch {
				case how&0x80 != 0 && i%2 == 0:
					v = unsetValue
				case how&0x40 != 0 && i%2 == 1:
					v = nullValue
				}
				params.Values = append(params.Values, v)
			}
			var res *engine.Result
			if res, err = n.engine.Execute(t.Context(), p, params); err == nil {
				decodeRows(t, res)
			}
		}
		var e *cqlerr.Error
		if err != nil && !errors.As(err, &e) {
			t.Errorf("%s: %v is no error of CQL", text, err)
		}
	})
}
