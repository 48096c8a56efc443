package cql

import "testing"

func TestParse_Insert(t *testing.T) {
	t.Parallel()
	kv := Name{"ks", "kv"}
	check(t, map[string]Statement{
		"INSERT INTO ks.kv (k, v) VALUES (1, null)": &Insert{
			Table: kv, Columns: []string{"k", "v"}, Values: []Term{integer("1"), Null{}},
		},
		"INSERT INTO ks.kv (k) VALUES (1) IF NOT EXISTS USING TTL 5 AND TIMESTAMP 6 AND TIMEOUT 7ms": &Insert{
			Table: kv, Columns: []string{"k"}, Values: []Term{integer("1")}, If: &Cond{NotExists: true},
			Using: Using{TTL: integer("5"), Timestamp: integer("6"), Timeout: Literal{LitDuration, "7ms"}},
		},
		"INSERT INTO ks.kv (k) VALUES (1) USING TIMESTAMP 1 AND TIMESTAMP 2": &Insert{
			Table: kv, Columns: []string{"k"}, Values: []Term{integer("1")}, Using: Using{Timestamp: integer("2")},
		},
	})
}

func TestParse_Update(t *testing.T) {
	t.Parallel()
	one := integer("1")
	where := []Relation{eq("k", one)}
	tests := map[string]Assignment{
		"v = 1":           {Column: "v", Value: one},
		"v = f(1)":        {Column: "v", Value: FuncCall{Name{"", "f"}, []Term{one}}},
		"v = v + 1":       {Column: "v", Kind: AssignAppend, Value: one},
		"V = v - 1":       {Column: "v", Kind: AssignRemove, Value: one},
		"v = v + [1]":     {Column: "v", Kind: AssignAppend, Value: ListLit{[]Term{one}}},
		"v = v - {1}":     {Column: "v", Kind: AssignRemove, Value: SetLit{[]Term{one}}},
		"v['a'] = 1":      {Column: "v", Kind: AssignElem, Elem: str("a"), Value: one},
		"v = null":        {Column: "v", Value: Null{}},
		"\"V\" = \"V\"+1": {Column: "V", Kind: AssignAppend, Value: one},
	}
	for text, want := range tests {
		check(t, map[string]Statement{
			"UPDATE t SET " + text + " WHERE k = 1": &Update{Table: Name{Name: "t"}, Set: []Assignment{want}, Where: where},
		})
	}
	check(t, map[string]Statement{
		"UPDATE t USING TIMEOUT 5s AND TTL 5 SET v = 1, w = 1 WHERE k = 1 IF EXISTS": &Update{
			Table: Name{Name: "t"}, Using: Using{Timeout: Literal{LitDuration, "5s"}, TTL: integer("5")},
			Set:   []Assignment{{Column: "v", Value: one}, {Column: "w", Value: one}},
			Where: where, If: &Cond{Exists: true},
		},
		"UPDATE t SET v = 1 WHERE k = 1 IF exists = 1 AND m != 1 AND l IN (1) AND w IN ? AND z = null": &Update{
			Table: Name{Name: "t"}, Set: []Assignment{{Column: "v", Value: one}}, Where: where, Binds: Binds{[]string{""}},
			If: &Cond{Columns: []Relation{
				eq("exists", one),
				{Columns: []string{"m"}, Op: OpNE, Value: one},
				{Columns: []string{"l"}, Op: OpIn, In: []Term{one}},
				{Columns: []string{"w"}, Op: OpIn, Value: Marker{0}},
				eq("z", Null{}),
			}},
		},
	})
}

func TestParse_Delete(t *testing.T) {
	t.Parallel()
	where := []Relation{eq("k", integer("1"))}
	check(t, map[string]Statement{
		"DELETE FROM t WHERE k = 1": &Delete{Table: Name{Name: "t"}, Where: where},
		"DELETE a, m['x'] FROM t USING TIMESTAMP 5 WHERE k = 1 IF a = 1": &Delete{
			Targets: []DeleteTarget{{Column: "a"}, {Column: "m", Elem: str("x")}},
			Table:   Name{Name: "t"}, Using: Using{Timestamp: integer("5")}, Where: where,
			If: &Cond{Columns: []Relation{eq("a", integer("1"))}},
		},
	})
}

func TestParse_Batch(t *testing.T) {
	t.Parallel()
	del := &Delete{Table: Name{Name: "t"}, Where: []Relation{eq("k", integer("1"))}}
	check(t, map[string]Statement{
		"BEGIN BATCH APPLY BATCH": &Batch{},
		"BEGIN COUNTER BATCH USING TIMESTAMP 5 AND TIMEOUT 3ms DELETE FROM t WHERE k = 1; DELETE FROM t WHERE k = 1 APPLY BATCH;": &Batch{
			Kind: BatchCounter, Using: Using{Timestamp: integer("5"), Timeout: Literal{LitDuration, "3ms"}},
			Statements: []Statement{del, del},
		},
	})
}
