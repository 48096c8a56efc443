package main

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

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

// settingsTable returns a table for each section, with the commands that use it.
func settingsTable() string {
	var b strings.Builder
	last := ""
	for _, s := range app.Settings {
		section, _, _ := strings.Cut(s.Key, ".")
		if section != last {
			fmt.Fprintf(&b, "\n## %s\n%s\n\n| Key | Default | |\n|---|---|---|\n", section, sectionUsers(section))
			last = section
		}
		mark := ""
		if s.Production {
			mark = "**set it** · "
		}
		fmt.Fprintf(&b, "| <a id=%q></a>`%s` | %s | %s%s |\n", s.Key, s.Key, code(s.Text()), mark, s.Usage)
	}
	return b.String() + "\n"
}

// sectionUsers returns the commands that have a flag of the section, as a sentence.
func sectionUsers(section string) string {
	names := map[string]bool{}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, s := range app.Settings {
			if strings.HasPrefix(s.Key, section+".") && s.Flag() != "" && cmd.Flags().Lookup(s.Flag()) != nil {
				name, _, _ := strings.Cut(strings.TrimPrefix(cmd.CommandPath(), "outbox "), " ")
				names["`outbox "+name+"`"] = true
			}
		}
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	visit(newRoot(io.Discard, io.Discard))
	return "Used by " + strings.Join(slices.Sorted(maps.Keys(names)), ", ") + "."
}

// code is text in backticks, nothing for none.
func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}
