package dlq

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the generated diagram in docs/design/dead-letters.md")

const (
	diagramBegin = "<!-- transitions -->\n"
	diagramEnd   = "<!-- /transitions -->\n"
)

// TestDesign_ShowsTheTransitions keeps the diagram the one that the code has.
func TestDesign_ShowsTheTransitions(t *testing.T) {
	t.Parallel()
	const file = "../docs/design/dead-letters.md"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(b), diagramBegin)
	got, after, ok2 := strings.Cut(rest, diagramEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no %q … %q", file, diagramBegin, diagramEnd)
	}
	want := diagram()
	if got == want {
		return
	}
	if !*update {
		t.Fatalf("the diagram in %s is not the code's; go test ./dlq -run Design -update", file)
	}
	if err := os.WriteFile(file, []byte(before+diagramBegin+want+diagramEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

// diagram draws transitions, one arrow for all actions between two statuses.
func diagram() string {
	var b strings.Builder
	b.WriteString("```mermaid\nstateDiagram-v2\n")
	for _, s := range []Status{Pending, Blocked, Suspended} {
		fmt.Fprintf(&b, "  [*] --> %s: %s\n", s, ActionWrite)
	}
	for _, from := range Statuses {
		for _, to := range Statuses {
			var by []string
			for _, a := range Actions {
				if slices.Contains(transitions[a][from], to) {
					by = append(by, string(a))
				}
			}
			if len(by) > 0 {
				fmt.Fprintf(&b, "  %s --> %s: %s\n", from, to, strings.Join(by, ", "))
			}
		}
	}
	b.WriteString("```\n")
	return b.String()
}

// Every action is somewhere, only a restore leads out of the archive, and only
// reopening back from resolved.
func TestTransitions_AreWhole(t *testing.T) {
	t.Parallel()
	for a, m := range transitions {
		if !slices.Contains(Actions, a) {
			t.Errorf("%s is not in Actions", a)
		}
		for from, to := range m {
			if !slices.Contains(Statuses, from) || len(to) == 0 {
				t.Errorf("%s from %s leads to %v", a, from, to)
			}
			for _, s := range to {
				if !slices.Contains(Statuses, s) {
					t.Errorf("%s from %s leads to %s", a, from, s)
				}
				if from == Archived && s != Archived && a != ActionRestore || !from.Open() && s.Open() && a != ActionRestore && (a != ActionReopen || from != Resolved) {
					t.Errorf("%s opens a %s dead letter again", a, from)
				}
			}
		}
	}
	if len(transitions) != len(Actions) {
		t.Errorf("%d actions have transitions, want %d", len(transitions), len(Actions))
	}
}
