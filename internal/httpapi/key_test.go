package httpapi

import "testing"

// A quoted key and a bare one are the same key; strings without an end are refused.
func TestKey(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]string{
		`k`: `k`, `"k"`: `k`, `"a b"`: `a b`, `"a\"b\\c"`: `a"b\c`, `a"b`: `a"b`, `8e03978e-40d5`: `8e03978e-40d5`,
	} {
		if got, ok := parseKey(header); got != want || !ok || Key(header) != want {
			t.Errorf("parseKey(%s) = %s, %t, want %s", header, got, ok, want)
		}
	}
	for _, header := range []string{``, `"`, `""`, `"k`, `"k"x`, `"k\x"`, `"k\`, `"k" `} {
		if got, ok := parseKey(header); ok {
			t.Errorf("parseKey(%s) = %s, want that it is refused", header, got)
		}
	}
}
