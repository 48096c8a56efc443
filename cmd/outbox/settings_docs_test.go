package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
)

var update = flag.Bool("update", false, "rewrite the generated part of docs/settings.md")

const (
	settingsPage = "../../docs/settings.md"
	tableBegin   = "<!-- settings -->\n"
	tableEnd     = "<!-- /settings -->\n"
)

// TestDocs_ListEverySetting keeps the table in docs/settings.md equal to the
// program's settings.
func TestDocs_ListEverySetting(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(settingsPage)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), tableBegin)
	got, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		t.Fatalf("docs/settings.md has no %q … %q", tableBegin, tableEnd)
	}
	want := settingsTable()
	if got == want {
		return
	}
	if !*update {
		t.Fatalf("the table in docs/settings.md differs from the program's settings; go test ./cmd/outbox -run Docs -update")
	}
	if err := os.WriteFile(settingsPage, []byte(before+tableBegin+want+tableEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func settingsTable() string {
	var b strings.Builder
	b.WriteString("| key in the file | environment | default | |\n|---|---|---|---|\n")
	for _, s := range app.Settings {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", s.Key, code(s.Env()), code(s.Text()), s.Usage)
	}
	return b.String()
}

// code is text in backticks, nothing for none.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}
