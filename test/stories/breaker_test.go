package stories

import (
	"fmt"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/test/sim"
)

// Of 100 events 50 are published when the broker fails and the breaker opens.
// The other 50 become dead letters. After 30 seconds three of them probe the
// broker, the breaker closes, and all are published automatically.
//
// The broker fails while no request is in flight and no connection is open:
// events that it may have received, or that were about to be sent, would wait
// in the producer and not be spilled.
func TestStory_BreakerOpensMidway(t *testing.T) {
	sim.Tell(t, func(s *sim.Story) {
		const all, half = 100, 50
		var placed []gocql.UUID
		place := func() {
			t.Helper()
			order, err := s.Place(fmt.Sprint(536365 + len(placed)))
			if err != nil {
				t.Fatalf("Place() error = %v, want none: orders do not depend on the broker", err)
			}
			placed = append(placed, order.ID)
		}
		for len(placed) < half {
			place()
		}
		s.Wait(time.Minute) // and idle connections are closed
		if n := s.Published(); n != half {
			t.Fatalf("%d events are published before the outage, want %d", n, half)
		}

		s.StopBroker()
		gone := s.Now()
		for len(placed) < all {
			place()
		}
		for s.Breaker().State != relay.BreakerOpen {
			if s.Now() > gone+time.Minute {
				t.Fatal("the breaker is not open a minute into the outage")
			}
			s.Wait(100 * time.Millisecond)
		}
		opened := s.Now() - time.Since(s.Breaker().Since)
		s.Wait(10 * time.Second)
		if n, deadLetters := s.Published(), s.DeadLetters(); n != half || len(deadLetters) != all-half {
			t.Errorf("%d events are published and %d are dead letters, want %d of each", n, len(deadLetters), half)
		}
		for _, l := range s.DeadLetters() {
			if l.ErrorClass != "breaker_open" || l.Status != dlq.Pending {
				t.Errorf("event %s is %s because of %s, want pending because of breaker_open", l.EventID, l.Status, l.ErrorClass)
			}
		}

		s.StartBroker()
		for s.Published() < all && s.Now() < opened+5*time.Minute {
			s.Wait(100 * time.Millisecond)
		}
		late := s.Now() - opened
		if late < 30*time.Second || late > 35*time.Second {
			t.Errorf("all events are published %s after the breaker opened, want soon after 30s", late)
		}
		t.Logf("the breaker opened %s into the outage, all events were out %s later", opened-gone, late)
		s.Wait(time.Second)
		open, probing, closed := s.BreakerChanges(relay.BreakerOpen), s.BreakerChanges(relay.BreakerHalfOpen), s.BreakerChanges(relay.BreakerClosed)
		if open != 1 || probing != 1 || closed != 1 || s.Breaker().State != relay.BreakerClosed {
			t.Errorf("the breaker was %d times open, %d times half-open, %d times closed again and is %s, want once each, and closed",
				open, probing, closed, s.Breaker().State)
		}
		for _, l := range s.DeadLetters() {
			if l.Status != dlq.Resolved || l.Outcome.Kind != dlq.OutcomeReplayed {
				t.Errorf("event %s is %s by %q, want resolved by its replay", l.EventID, l.Status, l.Outcome.Kind)
			}
		}
		s.Wait(10 * time.Minute) // and the sweep reader has read them all again
		if n := s.Published(); n != all {
			t.Errorf("%d records, want %d, each once", n, all)
		}
	})
}
