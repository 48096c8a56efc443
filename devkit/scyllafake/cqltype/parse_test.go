package cqltype

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestParse(t *testing.T) {
	t.Parallel()
	tests := []struct{ text, want string }{
		{"int", "int"},
		{"VARCHAR", "text"},
		{"list<int>", "list<int>"},
		{"frozen<map<timeuuid,int>>", "frozen<map<timeuuid, int>>"},
		{"map<text, frozen<list<int>>>", "map<text, frozen<list<int>>>"},
		{"frozen<list<list<int>>>", "frozen<list<frozen<list<int>>>>"},
		{"tuple<int, text>", "frozen<tuple<int, text>>"},
		{"frozen<tuple<int, text>>", "frozen<tuple<int, text>>"},
		{"tuple<list<int>>", "frozen<tuple<frozen<list<int>>>>"},
		{"list<tuple<int,int>>", "list<frozen<tuple<int, int>>>"},
	}
	for _, tt := range tests {
		ty, err := Parse(tt.text)
		if err != nil {
			t.Errorf("Parse(%q) error = %v", tt.text, err)
			continue
		}
		if got := ty.String(); got != tt.want {
			t.Errorf("Parse(%q) = %s, want %s", tt.text, got, tt.want)
		}
	}
}

func TestParse_Errors(t *testing.T) {
	t.Parallel()
	tests := []struct{ text, want string }{
		{"list<list<int>>", "2200 Non-frozen user types or collections are not allowed inside collections: list<list<int>>"},
		{"nosuchtype", "2200 scyllafake does not support the type nosuchtype"},
		{"frozen<int>", "2200 frozen<> is only allowed on collections, tuples, and user-defined types (got int)"},
		{"set<duration>", "2200 Durations are not allowed inside sets: set<duration>"},
		{"map<frozen<list<duration>>, int>", "2200 Durations are not allowed as map keys"},
		{"list<counter>", "2200 scyllafake does not support counters"},
		{"list<int", "2000 "},
		{"list<int,int>", "2000 "},
		{"int int", "2000 "},
		{"", "2000 "},
		{`"u`, "2000 "},
	}
	for _, tt := range tests {
		if _, err := Parse(tt.text); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("Parse(%q) error = %v, want %s", tt.text, err, tt.want)
		}
	}
}

func TestType_NameParsesBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ty := anyType(3).Draw(t, "type")
		back, err := Parse(ty.String())
		if err != nil || !back.Equal(ty) {
			t.Fatalf("Parse(%s) = %s, %v", ty, back, err)
		}
	})
}

func TestType_MultiCell(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"int": false, "list<int>": true, "frozen<list<int>>": false, "tuple<int>": false,
	} {
		ty, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := ty.IsMultiCell(); got != want {
			t.Errorf("%s: IsMultiCell() = %t, want %t", text, got, want)
		}
	}
}
