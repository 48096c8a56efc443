package cql

import (
	"reflect"
	"strings"
	"testing"
)

// check parses every text and compares the tree with want.
func check(t *testing.T, tests map[string]Statement) {
	t.Helper()
	for text, want := range tests {
		got, err := Parse(text)
		if err != nil {
			t.Errorf("Parse(%q) error = %v", text, err)
			continue
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("Parse(%q)\n got %#v\nwant %#v", text, got, want)
		}
	}
}

// term parses text as a value.
func parseTerm(t *testing.T, text string) Term {
	t.Helper()
	stmt, err := Parse("INSERT INTO t (a) VALUES (" + text + ")")
	if err != nil {
		t.Errorf("term %q: %v", text, err)
		return nil
	}
	return stmt.(*Insert).Values[0]
}

func integer(s string) Literal { return Literal{LitInteger, s} }
func str(s string) Literal     { return Literal{LitString, s} }
func eq(column string, v Term) Relation {
	return Relation{Columns: []string{column}, Op: OpEQ, Value: v}
}

func TestParse_Terms(t *testing.T) {
	t.Parallel()
	tests := map[string]Term{
		"1":               integer("1"),
		"-1":              integer("-1"),
		"1.5e3":           Literal{LitFloat, "1.5e3"},
		"NaN":             Literal{LitFloat, "NaN"},
		"-Infinity":       Literal{LitFloat, "-Infinity"},
		"'it''s'":         str("it's"),
		"''":              str(""),
		"$$a ''b$$":       str("a ''b"),
		"TRUE":            Literal{LitBool, "TRUE"},
		"0xCAFE":          Literal{LitHex, "CAFE"},
		"0x":              Literal{LitHex, ""},
		"1h30m":           Literal{LitDuration, "1h30m"},
		"PT5H":            Literal{LitDuration, "PT5H"},
		"null":            Null{},
		"?":               Marker{0},
		":Name":           Marker{0},
		"[]":              ListLit{},
		"[1, ?]":          ListLit{[]Term{integer("1"), Marker{0}}},
		"{}":              SetLit{},
		"{'a'}":           SetLit{[]Term{str("a")}},
		"{'a': 1}":        MapLit{[]Term{str("a")}, []Term{integer("1")}},
		"{x: 1, Y: ?}":    UDTLit{[]string{"x", "y"}, []Term{integer("1"), Marker{0}}},
		"{now(): :b}":     MapLit{[]Term{FuncCall{Name: Name{Name: "now"}}}, []Term{Marker{0}}},
		"(1, 'x')":        TupleLit{[]Term{integer("1"), str("x")}},
		"(1)":             TupleLit{[]Term{integer("1")}},
		"(int)1":          Cast{"int", integer("1")},
		"(list<INT>)[1]":  Cast{"list<int>", ListLit{[]Term{integer("1")}}},
		"(ks.ty)?":        Cast{"ks.ty", Marker{0}},
		"now()":           FuncCall{Name: Name{Name: "now"}},
		"ks.F(1)":         FuncCall{Name{"ks", "f"}, []Term{integer("1")}},
		`"F"(now())`:      FuncCall{Name{"", "F"}, []Term{FuncCall{Name: Name{Name: "now"}}}},
		"token(1, 2)":     FuncCall{Name{"", "token"}, []Term{integer("1"), integer("2")}},
		"timeuuid('x')":   FuncCall{Name{"", "timeuuid"}, []Term{str("x")}},
		"{[1], (2), {3}}": SetLit{[]Term{ListLit{[]Term{integer("1")}}, TupleLit{[]Term{integer("2")}}, SetLit{[]Term{integer("3")}}}},
	}
	for text, want := range tests {
		if got := parseTerm(t, text); !reflect.DeepEqual(got, want) {
			t.Errorf("term %q = %#v, want %#v", text, got, want)
		}
	}
}

func TestParse_Types(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"INT":                                 "int",
		"frozen<map<text,list<int>>>":         "frozen<map<text, list<int>>>",
		"Frozen < Set < timeuuid > >":         "frozen<set<timeuuid>>",
		"tuple<int,text , frozen<u>>":         "tuple<int, text, frozen<u>>",
		"ks.MyType":                           "ks.mytype",
		`"Ks"."My ""type"`:                    `"Ks"."My ""type"`,
		`map<text, frozen<"int">>`:            `map<text, frozen<"int">>`,
		"list":                                `"list"`, // a user type of that name
		"frozen<frozen<list<int>>>":           "frozen<frozen<list<int>>>",
		"tuple<tuple<int>,tuple<tuple<int>>>": "tuple<tuple<int>, tuple<tuple<int>>>",
	}
	for text, want := range tests {
		stmt, err := Parse("CREATE TABLE t (a " + text + " PRIMARY KEY)")
		if err != nil {
			t.Errorf("type %q: %v", text, err)
			continue
		}
		got := stmt.(*CreateTable).Columns[0].Type
		if got != want {
			t.Errorf("type %q = %q, want %q", text, got, want)
		}
		again, err := Parse("CREATE TABLE t (a " + got + " PRIMARY KEY)")
		if err != nil || again.(*CreateTable).Columns[0].Type != got {
			t.Errorf("type %q does not read back the same: %v", got, err)
		}
	}
}

func TestParse_Binds(t *testing.T) {
	t.Parallel()
	tests := map[string][]string{
		"SELECT * FROM t": nil,
		"SELECT * FROM t WHERE a = ? AND b = :X AND c IN (?, :x) AND d > ? PER PARTITION LIMIT :l LIMIT ? USING TIMEOUT ?": {"", "x", "", "", "l", "", ""},
		"INSERT INTO t (a, b) VALUES (?, :\"Q\") USING TTL ? AND TIMESTAMP :q":                                             {"", "Q", "", "q"},
		"INSERT INTO t JSON ?": {""},
		"UPDATE t USING TTL ? SET a = ?, b[?] = ?, c = c + ? WHERE k = ? IF a IN ? AND b = :z":                                                          {"", "", "", "", "", "", "", "z"},
		"DELETE m[?] FROM t USING TIMESTAMP ? WHERE k = ? IF a = ?":                                                                                     {"", "", "", ""},
		"BEGIN BATCH USING TIMESTAMP ? INSERT INTO t (a) VALUES (?); UPDATE t SET a = ? WHERE k = ? DELETE FROM t WHERE k = :x AND c = :x; APPLY BATCH": {"", "", "", "", "x"},
	}
	for text, want := range tests {
		stmt, err := Parse(text)
		if err != nil {
			t.Errorf("Parse(%q) error = %v", text, err)
			continue
		}
		got := reflect.ValueOf(stmt).Elem().FieldByName("Binds").Interface().(Binds).Names
		if !reflect.DeepEqual(got, want) {
			t.Errorf("Parse(%q) binds = %q, want %q", text, got, want)
		}
	}
}

// Markers of a batch are numbered through, and its statements have no Binds of their own.
func TestParse_BatchMarkers(t *testing.T) {
	t.Parallel()
	stmt, err := Parse("BEGIN UNLOGGED BATCH INSERT INTO t (a) VALUES (?); DELETE FROM t WHERE a = ? APPLY BATCH;;")
	if err != nil {
		t.Fatal(err)
	}
	want := &Batch{
		Kind: BatchUnlogged, Binds: Binds{[]string{"", ""}},
		Statements: []Statement{
			&Insert{Table: Name{Name: "t"}, Columns: []string{"a"}, Values: []Term{Marker{0}}},
			&Delete{Table: Name{Name: "t"}, Where: []Relation{eq("a", Marker{1})}},
		},
	}
	if !reflect.DeepEqual(stmt, want) {
		t.Errorf("Parse() = %#v, want %#v", stmt, want)
	}
}

func TestParse_Unsupported(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"CREATE ROLE r WITH PASSWORD = 'x' AND LOGIN = true;": "CREATE ROLE",
		"GRANT SELECT ON ks.t TO r":                           "GRANT",
		"LIST ALL PERMISSIONS OF r":                           "LIST",
		"CREATE OR REPLACE FUNCTION f (a int) RETURNS NULL ON NULL INPUT RETURNS int LANGUAGE lua AS 'x'": "CREATE FUNCTION",
		"PRUNE MATERIALIZED VIEW v WHERE a = 1":                                                           "PRUNE MATERIALIZED VIEW",
		"ATTACH SERVICE LEVEL sl TO r":                                                                    "ATTACH SERVICE LEVEL",
		"UPDATE t SET l[SCYLLA_TIMEUUID_LIST_INDEX(?)] = 1 WHERE k = 1":                                   "SCYLLA_TIMEUUID_LIST_INDEX",
		"SELECT * FROM t WHERE a = 1 AND (b) > SCYLLA_CLUSTERING_BOUND (1)":                               "SCYLLA_CLUSTERING_BOUND",
		"SELECT count() FROM t":                                                                           "count() without an argument",
	}
	for text, want := range tests {
		stmt, err := Parse(text)
		if err != nil {
			t.Errorf("Parse(%q) error = %v", text, err)
			continue
		}
		if u, ok := stmt.(*Unsupported); !ok || u.What != want {
			t.Errorf("Parse(%q) = %#v, want Unsupported %q", text, stmt, want)
		}
	}
}

func TestParse_Depth(t *testing.T) {
	t.Parallel()
	const deep = 100_000
	texts := []string{
		"INSERT INTO t (a) VALUES (" + strings.Repeat("[", deep),
		"INSERT INTO t (a) VALUES " + strings.Repeat("(", deep),
		"INSERT INTO t (a) VALUES (" + strings.Repeat("{", deep),
		"INSERT INTO t (a) VALUES (" + strings.Repeat("{1:", deep),
		"INSERT INTO t (a) VALUES (" + strings.Repeat("{x:", deep),
		"INSERT INTO t (a) VALUES (" + strings.Repeat("(int)", deep) + "1",
		"INSERT INTO t (a) VALUES (" + strings.Repeat("f(", deep),
		"SELECT " + strings.Repeat("f(", deep) + " FROM t",
		"SELECT " + strings.Repeat("CAST(", deep) + " FROM t",
		"SELECT * FROM t WHERE " + strings.Repeat("(", deep) + "a = 1",
		"CREATE TABLE t (a " + strings.Repeat("list<", deep) + "int",
		"INSERT INTO t (a) VALUES ((" + strings.Repeat("list<", deep) + "int",
	}
	for _, text := range texts {
		if _, err := Parse(text); err == nil {
			t.Errorf("Parse(%.40q…) took %d nested brackets", text, deep)
		}
	}
	nested := strings.Repeat("[", MaxDepth-1) + "1" + strings.Repeat("]", MaxDepth-1)
	if _, err := Parse("INSERT INTO t (a) VALUES (" + nested + ")"); err != nil {
		t.Errorf("%d levels are refused: %v", MaxDepth-1, err)
	}
}

func BenchmarkParse_Insert(b *testing.B) {
	const text = "INSERT INTO outbox.outbox_messages (aggregate_id, seq, event_id, aggregate_type, event_type, payload, content_type, headers, created_at) " +
		"VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) USING TTL ?"
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}
