package dlq

import (
	"testing"
	"time"
)

// An operator's process may sleep between its request and the change, as a notebook that is
// closed; meanwhile the relay removes the request.
func TestRequests_OfAChangeThatIsMadeLate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.bring(t, Suspended)
	relay := b.another(t)
	slept := false
	operator := b.another(t, WithFence(&writes{func() { // called between the request and the change
		if !slept {
			slept = true
			b.clock.at = b.clock.at.Add(requestGrace + time.Minute)
			if got, err := relay.Requests(t.Context(), testTable, nil); err != nil || len(got) != 0 {
				t.Errorf("Requests() before the change = %+v, %v", got, err)
			}
		}
	}}))
	if err := operator.Discard(t.Context(), id, eve); err != nil {
		t.Fatal(err)
	}
	if l := b.mustRead(t, id); !slept || l.Status != Resolved {
		t.Fatalf("the dead letter is %s", l.Status)
	}
	b.clock.at = b.clock.at.Add(time.Hour)
	got, err := relay.Requests(t.Context(), testTable, nil)
	if err != nil || len(got) != 1 || got[0].EventID != id || got[0].Action != ActionDiscard || got[0].Entry.Status != Resolved {
		t.Errorf("Requests() = %+v, %v, want the discard: the relay keeps the aggregate blocked", got, err)
	}
}
