package orders

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/gocql/gocql"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

var update = flag.Bool("update", false, "rewrite the diagram in docs/design/orders.md")

// do makes a change of the kind, the simplest there is.
func (b *fixture) do(t testing.TB, c Change, id gocql.UUID, opts WriteOptions) (Result, error) {
	t.Helper()
	switch c {
	case ChangeUpdate:
		country := "EIRE"
		return b.Update(t.Context(), id, Update{Country: &country}, opts)
	case ChangeConfirm:
		return b.Confirm(t.Context(), id, Confirmation{}, opts)
	case ChangeShip:
		return b.Ship(t.Context(), id, Shipment{}, opts)
	default:
		return b.Cancel(t.Context(), id, Cancellation{}, opts)
	}
}

// way contains the changes that lead to each status.
var way = map[Status][]Change{
	StatusPlaced:    nil,
	StatusConfirmed: {ChangeConfirm},
	StatusShipped:   {ChangeConfirm, ChangeShip},
	StatusCancelled: {ChangeCancel},
}

// Every change is tried in every status: an allowed change has the status of
// the table and one event; a refused one stores nothing.
func TestTransitions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	want := map[Change]map[Status]string{ // on its own, not read from the table
		ChangeUpdate:  {StatusPlaced: "placed", StatusConfirmed: "confirmed", StatusShipped: problemShipped, StatusCancelled: problemCancelled},
		ChangeConfirm: {StatusPlaced: "confirmed", StatusConfirmed: problemConfirmed, StatusShipped: problemShipped, StatusCancelled: problemCancelled},
		ChangeShip:    {StatusPlaced: problemUnconfirmed, StatusConfirmed: "shipped", StatusShipped: problemShipped, StatusCancelled: problemCancelled},
		ChangeCancel:  {StatusPlaced: "cancelled", StatusConfirmed: "cancelled", StatusShipped: problemShipped, StatusCancelled: problemCancelled},
	}
	for _, c := range Changes {
		for _, from := range Statuses {
			t.Run(fmt.Sprintf("%s of %s", c, from), func(t *testing.T) {
				t.Parallel()
				o := b.mustCreate(t)
				events := []string{EventCreated}
				for _, step := range way[from] {
					r, err := b.do(t, step, o.ID, WriteOptions{})
					if err != nil {
						t.Fatal(err)
					}
					o, events = r.Order, append(events, step.eventType())
				}
				r, err := b.do(t, c, o.ID, WriteOptions{})
				to, allowed := from.after(c)
				var conflict *ConflictError
				switch {
				case allowed && (err != nil || r.Order.Status != to || string(to) != want[c][from] || r.Order.Version != o.Version+1):
					t.Errorf("= %+v, %v, want %s", r, err, want[c][from])
				case allowed:
					events = append(events, c.eventType())
				case !errors.As(err, &conflict) || conflict.problem() != want[c][from] || conflict.Order.Status != from || conflict.Reason() == "":
					t.Errorf("= %v, want a *ConflictError %s", err, want[c][from])
				}
				b.mustBe(t, o.ID, events...)
			})
		}
	}
}

const (
	design       = "../docs/design/orders.md"
	diagramBegin = "<!-- states -->\n"
	diagramEnd   = "<!-- /states -->\n"
)

func diagram() string {
	var s strings.Builder
	s.WriteString("```mermaid\nstateDiagram-v2\n  [*] --> placed: create\n")
	for _, from := range Statuses {
		out := 0
		for _, to := range Statuses {
			var by []string
			for _, c := range Changes {
				if got, ok := from.after(c); ok && got == to {
					by = append(by, string(c))
				}
			}
			if len(by) > 0 {
				fmt.Fprintf(&s, "  %s --> %s: %s\n", from, to, strings.Join(by, ", "))
				out++
			}
		}
		if out == 0 {
			fmt.Fprintf(&s, "  %s --> [*]\n", from)
		}
	}
	s.WriteString("```\n")
	return s.String()
}

// The diagram is that of the table.
func TestDesign_ShowsTheStates(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(design)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), diagramBegin)
	got, after, ok2 := strings.Cut(rest, diagramEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no %q … %q", design, diagramBegin, diagramEnd)
	}
	if got == diagram() {
		return
	}
	if !*update {
		t.Fatal("the diagram differs from the table; run go test ./orders -run Design -update")
	}
	if err := os.WriteFile(design, []byte(before+diagramBegin+diagram()+diagramEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestStatuses_AreAllInTheAPI(t *testing.T) {
	t.Parallel()
	var all []string
	for _, s := range Statuses {
		all = append(all, string(s))
	}
	r := world.Request(t, withoutDatabase(t), "GET", "/openapi.json", "")
	for name, v := range r.Body["components"].(map[string]any)["schemas"].(map[string]any) {
		properties, _ := v.(map[string]any)["properties"].(map[string]any)
		for _, field := range []string{"status", "current_status"} {
			p, _ := properties[field].(map[string]any)
			enum, _ := p["enum"].([]any)
			var got []string
			for _, e := range enum {
				got = append(got, fmt.Sprint(e))
			}
			if enum != nil && !slices.Equal(got, all) {
				t.Errorf("%s.%s is one of %q, want %q", name, field, got, all)
			}
		}
	}
}
