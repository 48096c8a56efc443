package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
)

// TestSurface_Commands compares commands and flags with test/surface/testdata/commands.txt;
// package test/surface compares the rest of what users depend on.
func TestSurface_Commands(t *testing.T) {
	t.Parallel()
	settings := make(map[string]bool)
	for _, s := range app.Settings {
		settings[strings.NewReplacer(".", "-", "_", "-").Replace(s.Key)] = true
	}
	var b strings.Builder
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		fmt.Fprintln(&b, cmd.UseLine())
		for _, alias := range cmd.Aliases {
			fmt.Fprintln(&b, "  alias", alias)
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden || settings[f.Name] { // a setting is in settings.txt
				return
			}
			short := ""
			if f.Shorthand != "" {
				short = " -" + f.Shorthand
			}
			fmt.Fprintf(&b, "  --%s%s %s = %q\n", f.Name, short, f.Value.Type(), f.DefValue)
		})
		for _, c := range cmd.Commands() {
			visit(c)
		}
	}
	visit(newRoot(io.Discard, io.Discard))
	const path = "../../test/surface/testdata/commands.txt"
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != b.String() {
		t.Errorf("commands or flags are not those of %s (%v). If CONTRIBUTING.md allows the change: go test ./cmd/outbox -run Surface -update", path, err)
	}
}
