package jsonform

import (
	"strings"
	"testing"
)

func TestPlain_SendsNamesOnly(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"": "", "body": "body", "body.lines[2].unit_price": "body.lines[2].unit_price", "header.If-Match": "header.If-Match",
		"body.a secret": "body.a…", "body.é": "body.…", "body.<script>": "body.…", strings.Repeat("a", 100): strings.Repeat("a", 100),
		strings.Repeat("a", 101): strings.Repeat("a", 100) + "…",
	} {
		if got := Plain(path); got != want {
			t.Errorf("Plain(%q) = %q, want %q", path, got, want)
		}
	}
}
