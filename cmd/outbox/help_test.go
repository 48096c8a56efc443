package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

// Each example of --help is a valid command line.
func TestHelp_ExamplesAreValid(t *testing.T) {
	t.Parallel()
	for path, text := range examples {
		for line := range strings.Lines(text) {
			words, found := strings.Fields(line), false
			for i, w := range words { // variables come first
				if w == "outbox" {
					words, found = words[i+1:], true
					break
				}
			}
			root := newRoot(io.Discard, io.Discard)
			cmd, rest, err := root.Find(words)
			if err != nil || !found || strings.TrimPrefix(cmd.CommandPath(), "outbox ") != path {
				t.Errorf("the example %q of %q is of the command %q: %v", line, path, cmd.CommandPath(), err)
				continue
			}
			if err := cmd.ParseFlags(rest); err != nil {
				t.Errorf("the example %q: %v", line, err)
			}
			if class, _ := cmd.Flags().GetString("error-class"); class != "" && !slices.Contains(dlq.ErrorClasses, class) {
				t.Errorf("the example %q: no dead letter has the class %s", line, class)
			}
		}
	}
}

// Each command that does something has an example.
func TestHelp_EachCommandHasAnExample(t *testing.T) {
	t.Parallel()
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			visit(c)
		}
		if !cmd.HasSubCommands() && !cmd.HasExample() {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
	}
	visit(newRoot(io.Discard, io.Discard))
}

// Help lists a command's own flags first, then the settings in groups.
func TestHelp_GroupsFlags(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if code := run([]string{"dlq", "list", "--help"}, &out, io.Discard); code != cli.ExitOK {
		t.Fatalf("status %d", code)
	}
	text, last := out.String(), -1
	for _, part := range []string{"Examples:\n  outbox dlq list --since 1h\n", "\nFlags:\n      --aggregate-id", "      --wide ", "\nSettings of scylla:\n", "--scylla-hosts"} {
		i := strings.Index(text, part)
		if i <= last {
			t.Errorf("%q is at %d, after %d, in\n%s", part, i, last, text)
		}
		last = i
	}
}

// An unknown subcommand is an error with the likely one.
func TestHelp_UnknownSubcommand(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ args, want string }{
		{"dlq lisst", "hint: did you mean list"},
		{"dlq jobs resum", "hint: did you mean resume?"},
		{"subscriptions purg", "hint: did you mean purge?"},
		{"verfy", "verify"},
		{"dlq zzzzzz", `unknown command "zzzzzz" for "outbox dlq"`},
	} {
		var errOut bytes.Buffer
		if code := run(strings.Fields(x.args), io.Discard, &errOut); code != cli.ExitUsage || !strings.Contains(errOut.String(), x.want) {
			t.Errorf("outbox %s: status %d\n%swant %q", x.args, code, errOut.String(), x.want)
		}
	}
}
