package dlq

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// Between a process whose clock is two minutes ahead and another one, the later write
// counts: of holds, which relays write and remove, and of requests, which operators
// write and relays remove.
func TestClocks_TheLaterWriteCounts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	fast := new(scyllatest.Clock)
	fast.Set(2 * time.Minute)
	ahead, err := Open(fast.Connect(t, b.Node), schema.DefaultKeyspace, WithClock(fast), steady)
	if err != nil {
		t.Fatal(err)
	}
	const table = "outbox.t"
	h := Hold{Rule: "r", Reason: "first"}
	for name, step := range map[string]struct{ write, remove *Store }{"written ahead": {ahead, b.Store}, "removed ahead": {b.Store, ahead}} {
		for range 2 {
			if err := step.write.SetHold(t.Context(), table, h); err != nil {
				t.Fatal(err)
			}
			if got, err := b.Holds(t.Context(), table); err != nil || len(got) != 1 {
				t.Errorf("%s: Holds() = %+v, %v, want one", name, got, err)
			}
			if err := step.remove.DropHold(t.Context(), table, h); err != nil {
				t.Fatal(err)
			}
			if got, err := b.Holds(t.Context(), table); err != nil || len(got) != 0 {
				t.Errorf("%s: Holds() = %+v, %v, want none", name, got, err)
			}
		}
		l := &DeadLetter{Table: table, EventID: [16]byte{1}, AggregateID: "a"}
		if err := step.write.request(t.Context(), l, ActionReplay, "ada"); err != nil {
			t.Fatal(err)
		}
		asked, err := b.readRequests(t.Context(), table, time.Unix(0, 0), nil)
		if err != nil || len(asked) != 1 {
			t.Fatalf("%s: requests %+v, %v, want one", name, asked, err)
		}
		if err := step.remove.Done(t.Context(), asked...); err != nil {
			t.Fatal(err)
		}
		if asked, err = b.readRequests(t.Context(), table, time.Unix(0, 0), nil); err != nil || len(asked) != 0 {
			t.Errorf("%s: requests %+v, %v, want none", name, asked, err)
		}
	}
}
