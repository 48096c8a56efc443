package cql

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestLex_Kinds(t *testing.T) {
	t.Parallel()
	tests := []struct{ text, want string }{
		{"select Select SELECT", "K_SELECT K_SELECT K_SELECT"},
		{"table columnfamily keyspace schema", "K_COLUMNFAMILY K_COLUMNFAMILY K_KEYSPACE K_KEYSPACE"},
		{`a a_1 "Mixed ""q""" 'it''s' $$a 'b' $c$$`, "IDENT IDENT QUOTED_NAME STRING_LITERAL STRING_LITERAL"},
		{"1 -1 1.5 1. -1.5e+3 1e3 1E-3 1e", "INTEGER INTEGER FLOAT FLOAT FLOAT FLOAT FLOAT INTEGER IDENT"},
		{"v-1 v - 1 v+1", "IDENT INTEGER IDENT '-' INTEGER IDENT '+' INTEGER"},
		{"true FALSE trueish", "BOOLEAN BOOLEAN IDENT"},
		{"0xCAFE 0x 0Xab 0", "HEXNUMBER HEXNUMBER HEXNUMBER INTEGER"},
		{"NaN -nan Infinity", "K_NAN '-' K_NAN K_INFINITY"},
		{"1h30m 1y2mo3w4d5h6m7s8ms9us10ns 5µs -5s 5MS", "DURATION DURATION DURATION DURATION DURATION"},
		{"50554d6e-29bb-11e5-b345-feff819cdc9f feff819c-dc9f-11e5-b345-000000000000", "UUID UUID"},
		{"00112233-4455-6677-8899-aabbccddeef", "INTEGER INTEGER INTEGER INTEGER '-' IDENT"},
		{"? :x <= >= != < > = ; . , * + ( ) [ ] { }", "QMARK ':' IDENT '<=' '>=' '!=' '<' '>' '=' ';' '.' ',' '*' '+' '(' ')' '[' ']' '{' '}'"},
		{"a -- c\nb // c\rc /* d\n * e */ d/**/e", "IDENT IDENT IDENT IDENT IDENT"},
		{"a\t\r\n b", "IDENT IDENT"},
	}
	for _, tt := range tests {
		toks, err := lex(tt.text, nil)
		if err != nil {
			t.Errorf("lex(%q) error = %v", tt.text, err)
			continue
		}
		var got []string
		for _, tok := range toks[:len(toks)-1] {
			got = append(got, string(tok.kind))
		}
		if g := strings.Join(got, " "); g != tt.want {
			t.Errorf("lex(%q) = %s, want %s", tt.text, g, tt.want)
		}
	}
}

func TestLex_Errors(t *testing.T) {
	t.Parallel()
	tests := []struct {
		text string
		line int
		col  int
	}{
		{"SELECT #", 1, 7},
		{"SELECT 'open", 1, 7},
		{"SELECT\n $$open$", 2, 1},
		{`SELECT "open`, 1, 7},
		{`SELECT ""`, 1, 7},
		{"SELECT 1 /* open", 1, 9},
		{"SELECT 1 -- no line end", 1, 9},
		{"a !", 1, 2},
		{"'ü' \x00", 1, 4},
		{"é", 1, 0},
	}
	for _, tt := range tests {
		_, err := lex(tt.text, nil)
		if err == nil || err.Line != tt.line || err.Column != tt.col {
			t.Errorf("lex(%q) error = %+v, want one at %d:%d", tt.text, err, tt.line, tt.col)
		}
	}
}

// The parser names keywords by text: each must be one.
func TestKeywords_AllKnown(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("parse*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no source: %v", err)
	}
	known := map[string]bool{}
	for _, k := range keywordOf {
		known[string(k)] = true
	}
	for _, file := range append(files, "keywords.go") {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`"(K_\w+)"`).FindAllSubmatch(src, -1) {
			if !known[string(m[1])] {
				t.Errorf("%s: %s is no keyword", file, m[1])
			}
		}
	}
}

// Every keyword that is not reserved can name a keyspace, table and column.
func TestParse_UnreservedKeywordsAreNames(t *testing.T) {
	t.Parallel()
	isReserved := map[string]bool{"table": true, "schema": true}
	for _, s := range strings.Fields(reservedWords) {
		isReserved[s] = true
	}
	for s := range keywordOf {
		text := fmt.Sprintf("SELECT %[1]s FROM %[1]s.%[1]s WHERE %[1]s = 1 AND %[1]s > 2 ORDER BY %[1]s", strings.ToUpper(s))
		stmt, err := Parse(text)
		if isReserved[s] {
			if err == nil {
				t.Errorf("Parse(%q) took a reserved word for a name", text)
			}
			continue
		}
		if err != nil {
			t.Errorf("Parse(%q) error = %v", text, err)
			continue
		}
		sel := stmt.(*Select)
		if sel.From != (Name{s, s}) || sel.Where[0].Columns[0] != s || sel.OrderBy[0].Column != s {
			t.Errorf("Parse(%q) = %+v", text, sel)
		}
	}
}
