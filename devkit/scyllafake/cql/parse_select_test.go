package cql

import (
	"slices"
	"testing"
)

func TestParse_Select(t *testing.T) {
	t.Parallel()
	kv := Name{Name: "kv"}
	star := func(s Select) *Select { s.Star, s.From = true, kv; return &s }
	col := func(c string) Selector { return Selector{Expr: ColumnRef{c}} }
	check(t, map[string]Statement{
		"SELECT * FROM kv": star(Select{}),
		"select * from Ks.kv;": &Select{
			Star: true, From: Name{"ks", "kv"},
		},
		`SELECT * FROM "Ks"."kv"`: &Select{Star: true, From: Name{"Ks", "kv"}},
		"SELECT DISTINCT pk, s FROM kv": &Select{
			Distinct: true, Selectors: []Selector{col("pk"), col("s")}, From: kv,
		},
		"SELECT json, distinct FROM kv": &Select{Selectors: []Selector{col("json"), col("distinct")}, From: kv},
		"SELECT json AS x FROM kv": &Select{
			Selectors: []Selector{{Expr: ColumnRef{"json"}, Alias: "x"}}, From: kv,
		},
		"SELECT as AS as FROM kv": &Select{Selectors: []Selector{{Expr: ColumnRef{"as"}, Alias: "as"}}, From: kv},
		"SELECT count(*), COUNT(1) AS n, count(w), count FROM kv": &Select{
			Selectors: []Selector{
				{Expr: FuncCall{Name: Name{Name: "count"}}},
				{Expr: FuncCall{Name: Name{Name: "count"}}, Alias: "n"},
				{Expr: FuncCall{Name{"", "count"}, []Term{ColumnRef{"w"}}}},
				col("count"),
			},
			From: kv,
		},
		"SELECT WriteTime( v ), ttl(\"V\"), ks.fn(a,  fn()) FROM kv": &Select{
			Selectors: []Selector{
				{Expr: FuncCall{Name{"", "writetime"}, []Term{ColumnRef{"v"}}}},
				{Expr: FuncCall{Name{"", "ttl"}, []Term{ColumnRef{"V"}}}},
				{Expr: FuncCall{Name{"ks", "fn"}, []Term{ColumnRef{"a"}, FuncCall{Name: Name{Name: "fn"}}}}},
			},
			From: kv,
		},
		"SELECT * FROM kv WHERE a = 1 ORDER BY c DESC, d ASC, e LIMIT ? ALLOW FILTERING BYPASS CACHE USING TIMEOUT 5s": star(Select{
			Binds:          Binds{[]string{""}},
			Where:          []Relation{eq("a", integer("1"))},
			OrderBy:        []Order{{"c", true}, {"d", false}, {"e", false}},
			Limit:          Marker{0},
			AllowFiltering: true, BypassCache: true,
			Timeout: Literal{LitDuration, "5s"},
		}),
		"SELECT * FROM kv USING TTL 5 AND TIMESTAMP 6": star(Select{TTL: integer("5"), Timestamp: integer("6")}),
	})
}

func TestParse_Where(t *testing.T) {
	t.Parallel()
	one, two := integer("1"), integer("2")
	tests := map[string]Relation{
		"a = 1":                     eq("a", one),
		"\"A\" != 1":                {Columns: []string{"A"}, Op: OpNE, Value: one},
		"a < 1":                     {Columns: []string{"a"}, Op: OpLT, Value: one},
		"a <= 1":                    {Columns: []string{"a"}, Op: OpLE, Value: one},
		"a > 1":                     {Columns: []string{"a"}, Op: OpGT, Value: one},
		"a >= 1":                    {Columns: []string{"a"}, Op: OpGE, Value: one},
		"a IN (1, 2)":               {Columns: []string{"a"}, Op: OpIn, In: []Term{one, two}},
		"a IN ()":                   {Columns: []string{"a"}, Op: OpIn, In: []Term{}},
		"a IN ?":                    {Columns: []string{"a"}, Op: OpIn, Value: Marker{0}},
		"a IN :x":                   {Columns: []string{"a"}, Op: OpIn, Value: Marker{0}},
		"token(a, b) > token(1, 2)": {Columns: []string{"a", "b"}, Token: true, Op: OpGT, Value: FuncCall{Name{"", "token"}, []Term{one, two}}},
		"(a) > (1)":                 {Columns: []string{"a"}, Multi: true, Op: OpGT, Value: TupleLit{[]Term{one}}},
		"((a = 1))":                 eq("a", one),
	}
	for text, want := range tests {
		binds := Binds{}
		for range countMarkers(want) {
			binds.Names = append(binds.Names, "")
		}
		if text == "a IN :x" {
			binds.Names[0] = "x"
		}
		check(t, map[string]Statement{
			"SELECT * FROM t WHERE " + text: &Select{Binds: binds, Star: true, From: Name{Name: "t"}, Where: []Relation{want}},
		})
	}
}

func countMarkers(r Relation) int {
	n := 0
	for _, v := range append([]Term{r.Value}, r.In...) {
		if _, ok := v.(Marker); ok {
			n++
		}
	}
	return n
}

func TestColumns(t *testing.T) {
	t.Parallel()
	stmt, err := Parse("SELECT max(writetime(a)), f(b, c), count(*) FROM t")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range stmt.(*Select).Selectors {
		got = slices.AppendSeq(got, Columns(s.Expr))
	}
	if want := []string{"a", "b", "c"}; !slices.Equal(got, want) {
		t.Errorf("Columns() = %q, want %q", got, want)
	}
	for c := range Columns(stmt.(*Select).Selectors[1].Expr) {
		if c != "b" {
			t.Errorf("first column = %q, want b", c)
		}
		break
	}
}
