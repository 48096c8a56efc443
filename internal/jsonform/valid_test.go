package jsonform

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// Valid accepts what encoding/json accepts in UTF-8.
func TestValid_IsThatOfEncodingJSON(t *testing.T) {
	t.Parallel()
	check := func(t interface{ Errorf(string, ...any) }, value []byte) {
		if got, want := Valid(value), utf8.Valid(value) && json.Valid(value); got != want {
			t.Errorf("Valid(%q) = %t, want %t", value, got, want)
		}
	}
	for _, value := range []string{
		"", " ", "null", " 1 ", `{"a":1,"a":2}`, `{"a":1}{}`, `[1,]`, `"\ud800"`, `"\uD83D\uDE00"`, `{"\udc00":"\ud83d\ud83d"}`, `"\ud800\u0041"`, "\"\xff\"", `01`, `-0`, `1e999`, `{"a"}`, "\"\t\"", "\ufeff1", `nul`, `[[[]]]`,
	} {
		check(t, []byte(value))
	}
	for _, depth := range []int{9_999, 10_000, 10_001} {
		check(t, []byte(strings.Repeat("[", depth)+strings.Repeat("]", depth)))
	}
	piece := rapid.SampledFrom([]string{"{", "}", "[", "]", ",", ":", `"`, `"a"`, "1", "-", ".", "e", "true", "null", " ", "\n", `\u0041`, `\`, "ü", "\xff"})
	rapid.Check(t, func(t *rapid.T) {
		var value []byte
		for _, p := range rapid.SliceOfN(piece, 0, 12).Draw(t, "pieces") {
			value = append(value, p...)
		}
		check(t, value)
	})
}
