package stories

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/test/sim"
)

// The broker refuses connections for 700 ms. The order is confirmed
// immediately, and its event is published when the broker is back.
func TestStory_TemporaryOutage(t *testing.T) {
	sim.Tell(t, func(s *sim.Story) {
		s.StopBroker()
		order, err := s.Place("536365")
		if err != nil {
			t.Fatalf("Place() error = %v, want none: the order does not depend on the broker", err)
		}
		if confirmed := s.Now(); confirmed > 100*time.Millisecond {
			t.Errorf("confirmed after %s, want immediately", confirmed)
		}
		s.Wait(700*time.Millisecond - s.Now())
		if n := s.Published(); n != 0 {
			t.Errorf("%d events are published without a broker", n)
		}
		s.StartBroker()
		s.Wait(10 * time.Second)

		at, ok := s.PublishedAt(order.ID)
		if !ok || at < 700*time.Millisecond || at > 5*time.Second {
			t.Errorf("published after %s (%t), want soon after 700ms", at, ok)
		}
		t.Logf("published %s after the order", at)
	})
}
