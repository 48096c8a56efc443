package engine_test

import (
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
)

func TestCollections(t *testing.T) {
	t.Parallel()
	n := setup(t, "CREATE TABLE col (k int PRIMARY KEY, l list<int>, se set<text>, m map<text, int>, fm frozen<map<text, int>>)")
	n.play(
		step{"UPDATE col SET l = l + [1, 2] WHERE k = 1", ""},
		step{"UPDATE col SET l = l + [3] WHERE k = 1", ""},
		step{"SELECT l FROM col WHERE k = 1", "[1, 2, 3]"},
		step{"UPDATE col SET m['a'] = 1, m['b'] = 2, se = se + {'x', 'y'} WHERE k = 1", ""},
		step{"DELETE m['a'], se['y'] FROM col WHERE k = 1", ""},
		step{"UPDATE col SET se = se - {'x'}, m = m + {'c': 3}, m['d'] = null WHERE k = 1", ""},
		step{"SELECT l, se, m FROM col WHERE k = 1", "[1, 2, 3] null {'b': 2, 'c': 3}"},
		step{"UPDATE col SET m = m - {'b', 'c'} WHERE k = 1", ""},
		step{"SELECT m FROM col WHERE k = 1", "null"},
		step{"UPDATE col SET l = [], m = {}, se = {} WHERE k = 1", ""},
		step{"SELECT * FROM col", "none"},
		step{"INSERT INTO col (k, l, se, m, fm) VALUES (3, [1, 1], {'b', 'a', 'b'}, {'b': 1, 'a': 2}, {'z': 1, 'y': 2})", ""},
		step{"SELECT * FROM col", "3 {'y': 2, 'z': 1} [1, 1] {'a': 2, 'b': 1} {'a', 'b'}"},
		step{"INSERT INTO col (k, l) VALUES (3, [7])", ""},
		step{"SELECT l FROM col", "[7]"},
		step{"UPDATE col SET fm['a'] = 1 WHERE k = 3", "2200 Invalid operation (fm['a'] = 1) for frozen collection column fm"},
		step{"SELECT WRITETIME(l) FROM col", "2200 Cannot use selection function writeTime on collections"},
	)
}

func TestCollections_Bound(t *testing.T) {
	t.Parallel()
	n := setup(t, "CREATE TABLE col (k int PRIMARY KEY, l list<int>, se set<text>, m map<text, int>)")
	set := cqltype.BuildCollection([]byte("b"), []byte("a"), []byte("b"))
	for _, c := range []struct {
		cql   string
		value engine.Value
		want  string
	}{
		{"INSERT INTO col (k, se) VALUES (1, ?)", engine.Value{Bytes: set}, ""},
		{"UPDATE col SET m[?] = 1 WHERE k = 1", nullValue, "2200 Invalid null map key"},
		{"UPDATE col SET m[?] = 1 WHERE k = 1", textValue("x"), ""},
		{"UPDATE col SET se = se + ? WHERE k = 1", unsetValue, ""},
		{"UPDATE col SET se = se + ? WHERE k = 1", nullValue, ""},
		{"UPDATE col SET se = ? WHERE k = 1", unsetValue, ""},
		{"UPDATE col SET se = {?} WHERE k = 1", unsetValue, "2200 unset value is not supported inside collections"},
		{"UPDATE col SET se = {?} WHERE k = 1", nullValue, "2200 null is not supported inside collections"},
		{"INSERT INTO col (k, l) VALUES (1, ?)", engine.Value{Bytes: cqltype.BuildCollection(nil)}, "2200 null is not supported inside collections"},
	} {
		if got := n.answer(c.cql, c.value); got != c.want {
			t.Errorf("%s with %v: %q, want %q", c.cql, c.value, got, c.want)
		}
	}
	n.play(step{"SELECT * FROM col", "1 null {'x': 1} {'a', 'b'}"})
}
