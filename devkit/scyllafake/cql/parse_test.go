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
		"null":            Null{},
		"?":               Marker{0},
		":Name":           Marker{0},
		"[]":              ListLit{},
		"[1, ?]":          ListLit{[]Term{integer("1"), Marker{0}}},
		"{}":              SetLit{},
		"{'a'}":           SetLit{[]Term{str("a")}},
		"{'a': 1}":        MapLit{[]Term{str("a")}, []Term{integer("1")}},
		"{now(): :b}":     MapLit{[]Term{FuncCall{Name: Name{Name: "now"}}}, []Term{Marker{0}}},
		"(1, 'x')":        TupleLit{[]Term{integer("1"), str("x")}},
		"(1)":             TupleLit{[]Term{integer("1")}},
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

// A type is taken as its text; package cqltype reads it.
func TestParse_Types(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"INT", "frozen<map<text,list<int>>>", "Frozen < Set < timeuuid > >", "tuple<tuple<int>,tuple<tuple<int>>>", "nosuch"} {
		stmt, err := Parse("CREATE TABLE t (a " + text + " PRIMARY KEY)")
		if err != nil {
			t.Errorf("type %q: %v", text, err)
			continue
		}
		if got := stmt.(*CreateTable).Columns[0].Type; got != text {
			t.Errorf("type %q = %q", text, got)
		}
	}
}

func TestParse_Binds(t *testing.T) {
	t.Parallel()
	tests := map[string][]string{
		"SELECT * FROM t": nil,
		"SELECT * FROM t WHERE a = ? AND b = :X AND c IN (?, :x) AND d > ? PER PARTITION LIMIT :l LIMIT ? USING TIMEOUT ?":                              {"", "x", "", "", "l", "", ""},
		"INSERT INTO t (a, b) VALUES (?, :\"Q\") USING TTL ? AND TIMESTAMP :q":                                                                          {"", "Q", "", "q"},
		"UPDATE t USING TTL ? SET a = ?, b[?] = ?, c = c + ? WHERE k = ? IF a = ? AND b = :z":                                                           {"", "", "", "", "", "", "", "z"},
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

func TestParse_Depth(t *testing.T) {
	t.Parallel()
	const deep = 100_000
	texts := []string{
		"INSERT INTO t (a) VALUES (" + strings.Repeat("[", deep),
		"INSERT INTO t (a) VALUES " + strings.Repeat("(", deep),
		"INSERT INTO t (a) VALUES (" + strings.Repeat("{", deep),
		"INSERT INTO t (a) VALUES (" + strings.Repeat("{1:", deep),
		"INSERT INTO t (a) VALUES (" + strings.Repeat("f(", deep),
		"SELECT " + strings.Repeat("f(", deep) + " FROM t",
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
