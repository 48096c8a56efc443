package httpapi

import (
	"strings"
	"testing"
)

// A quoted key and a bare one are the same key; other forms are refused.
func TestKey(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("k", 255)
	for header, want := range map[string]string{
		`k`: `k`, `"k"`: `k`, `"a\"b\\c"`: `a"b\c`, `"\\\""`: `\"`, `a"b`: `a"b`, `a\b`: `a\b`, `8e03978e-40d5`: `8e03978e-40d5`, longest: longest, `"` + longest + `"`: longest,
	} {
		if got := Key(header); got != want || !ofKeyForm.MatchString(header) {
			t.Errorf("Key(%s) = %s, want %s", header, got, want)
		}
	}
	for _, header := range []string{``, `"`, `""`, `"k`, `"k"x`, `"k\x"`, `"k\`, `"k" `, `a b`, `"a b"`, "k\x7f", longest + "k", `"` + longest + `k"`} {
		if ofKeyForm.MatchString(header) {
			t.Errorf("%s is a key", header)
		}
		_ = Key(header) // whatever it is
	}
}
