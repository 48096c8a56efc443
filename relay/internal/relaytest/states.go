package relaytest

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the state diagrams in docs/design/README.md")

// Nowhere is the state before the first transition and after the last.
const Nowhere = "[*]"

// Transition is a step of a state machine and its trigger.
type Transition struct{ From, To, By string }

// diagram returns the Mermaid diagram of a state machine.
func diagram(ts []Transition) string {
	var b strings.Builder
	b.WriteString("```mermaid\nstateDiagram-v2\n")
	for _, t := range ts {
		name := func(s string) string { return strings.ReplaceAll(s, "-", "_") } // Mermaid names have no hyphen
		fmt.Fprintf(&b, "  %s --> %s: %s\n", name(t.From), name(t.To), t.By)
	}
	b.WriteString("```\n")
	return b.String()
}

// CheckDiagram fails the test unless the diagram of the machine in the design document
// matches the transitions of the package's tests; -update rewrites it. root is the path
// of the repository's root.
func CheckDiagram(t *testing.T, root, name string, machine []Transition) {
	t.Helper()
	file := filepath.Join(root, "docs/design/README.md")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	begin, end := "<!-- states of "+name+" -->\n", "<!-- /states of "+name+" -->\n"
	before, rest, ok := strings.Cut(string(b), begin)
	got, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no %q … %q", file, begin, end)
	}
	switch want := diagram(machine); {
	case got == want:
	case *update:
		if err := os.WriteFile(file, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the diagram of %s in %s differs from the transitions of the test; run go test -run Design -update in this package", name, file)
	}
}

// Walk records the states of things and checks them against a state machine.
type Walk struct {
	t       *testing.T
	machine []Transition
	mu      sync.Mutex
	at      map[string]string // by thing
	seen    map[Transition]bool
}

// NewWalk returns a walk over the machine that has seen nothing.
func NewWalk(t *testing.T, machine []Transition) *Walk {
	return &Walk{t: t, machine: machine, at: make(map[string]string), seen: make(map[Transition]bool)}
}

// See records that the thing is in the state.
func (w *Walk) See(thing, state string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	from, ok := w.at[thing]
	if !ok {
		from = Nowhere
	}
	if from == state {
		return
	}
	w.at[thing] = state
	for _, t := range w.machine {
		if t.From == from && t.To == state {
			w.seen[t] = true
			return
		}
	}
	w.t.Errorf("%s went from %s to %s: no such transition", thing, from, state)
}

// Whole fails the test unless every transition occurred.
func (w *Walk) Whole() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.machine {
		if !w.seen[t] {
			w.t.Errorf("no transition from %s to %s (%s)", t.From, t.To, t.By)
		}
	}
}
