package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

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
		def := fmt.Sprint(s.Default)
		switch v := s.Default.(type) {
		case []string:
			def = strings.Join(v, ",")
		case time.Duration:
			def = v.String()
			for _, zero := range []string{"m0s", "h0m"} {
				if strings.HasSuffix(def, zero) {
					def = def[:len(def)-2]
				}
			}
		}
		if def != "" {
			def = "`" + def + "`"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s |\n", s.Key(), s.Env(), def, s.Usage)
	}
	return b.String()
}
