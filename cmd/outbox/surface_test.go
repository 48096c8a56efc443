package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
)

// The filters of lists have the names that the API has.
func TestLists_FiltersHaveTheNamesOfTheAPI(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../internal/admin/testdata/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string
			Parameters  []struct{ Name, In string }
		}
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	known := make(map[string]map[string]bool)
	for _, methods := range doc.Paths {
		for _, o := range methods {
			names := make(map[string]bool)
			for _, p := range o.Parameters {
				names[strings.ReplaceAll(p.Name, "_", "-")] = p.In != "header"
			}
			known[o.OperationID] = names
		}
	}
	settings := map[string]bool{"config": true, "context": true, "output": true, "wide": true}
	for _, s := range app.Settings {
		settings[strings.NewReplacer(".", "-", "_", "-").Replace(s.Key)] = true
	}
	for command, operation := range map[string]string{
		"dlq list": "list-dead-letters", "audit list": "list-audit", "dlq jobs list": "list-jobs", "events list": "list-events", "events get": "get-event", "dlq archive list": "list-archives",
	} {
		cmd, _, err := newRoot(io.Discard, io.Discard).Find(strings.Fields(command))
		if err != nil || known[operation] == nil {
			t.Fatalf("%s, %s: %v", command, operation, err)
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			// The command selects jobs and archives by time itself.
			own := (f.Name == "since" || f.Name == "until") && (operation == "list-jobs" || operation == "list-archives")
			if !f.Hidden && !settings[f.Name] && !own && !known[operation][f.Name] {
				t.Errorf("%s --%s: %s has no such parameter", command, f.Name, operation)
			}
		})
	}
}

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
