package relay

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the state diagrams in docs/design/README.md")

// nowhere is where everything begins and ends.
const nowhere = "[*]"

// transition is a step of a state machine, and what leads to it.
type transition struct{ from, to, by string }

// machines are the state machines of this package, as docs/design/README.md draws them. A
// test walks every transition of each: TestEvent_Transitions,
// TestBreaker_Transitions, TestStream_Transitions.
var machines = map[string][]transition{
	"event": eventTransitions, "breaker": breakerTransitions, "stream": streamTransitions,
}

// diagram draws a machine.
func diagram(ts []transition) string {
	var b strings.Builder
	b.WriteString("```mermaid\nstateDiagram-v2\n")
	for _, t := range ts {
		name := func(s string) string { return strings.ReplaceAll(s, "-", "_") } // mermaid's names have no hyphen
		fmt.Fprintf(&b, "  %s --> %s: %s\n", name(t.from), name(t.to), t.by)
	}
	b.WriteString("```\n")
	return b.String()
}

// The diagrams are those of the transitions that are walked.
func TestDesign_ShowsTheStates(t *testing.T) {
	t.Parallel()
	const file = "../docs/design/README.md"
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for name, ts := range machines {
		begin, end := "<!-- states of "+name+" -->\n", "<!-- /states of "+name+" -->\n"
		before, rest, ok := strings.Cut(text, begin)
		got, after, ok2 := strings.Cut(rest, end)
		if !ok || !ok2 {
			t.Fatalf("%s has no %q … %q", file, begin, end)
		}
		want := diagram(ts)
		if got != want && !*update {
			t.Errorf("the diagram of %s in %s is not the one that is walked; go test ./relay -run Design -update", name, file)
		}
		text = before + begin + want + end + after
	}
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// walk notes the states that things go through, and holds them to a machine.
type walk struct {
	t       *testing.T
	machine []transition
	mu      sync.Mutex
	at      map[string]string // by thing
	seen    map[transition]bool
}

func newWalk(t *testing.T, machine []transition) *walk {
	return &walk{t: t, machine: machine, at: make(map[string]string), seen: make(map[transition]bool)}
}

// see notes that the thing is in the state.
func (w *walk) see(thing, state string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	from, ok := w.at[thing]
	if !ok {
		from = nowhere
	}
	if from == state {
		return
	}
	w.at[thing] = state
	for _, t := range w.machine {
		if t.from == from && t.to == state {
			w.seen[t] = true
			return
		}
	}
	w.t.Errorf("%s went from %s to %s, which no transition is", thing, from, state)
}

// whole fails the test unless every transition was gone.
func (w *walk) whole() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range w.machine {
		if !w.seen[t] {
			w.t.Errorf("nothing went from %s to %s (%s)", t.from, t.to, t.by)
		}
	}
}
