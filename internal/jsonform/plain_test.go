package jsonform

import (
	"strings"
	"testing"
)

func TestPlain_TellsNamesOfFields(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxPlain)
	for path, want := range map[string]string{
		"":                     "",
		"body.lines[0].unit-Z": "body.lines[0].unit-Z",
		"query.since_1":        "query.since_1",
		"body.a b":             "body.a…",
		"body.ü":               "body.…",
		"\x00":                 "…",
		long:                   long,
		long + "x":             long + "…",
	} {
		if got := Plain(path); got != want {
			t.Errorf("Plain(%q) = %q, want %q", path, got, want)
		}
	}
}
