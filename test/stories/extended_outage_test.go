package stories

import (
	"slices"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/test/sim"
)

// The broker is unavailable for half an hour. All five attempts of an event
// fail, it becomes a dead letter, and the relay reports it. An engineer
// suspends it during the investigation, and when the broker is back it is not
// published until its replay is requested. Another dead letter is published
// automatically.
func TestStory_ExtendedOutage(t *testing.T) {
	sim.Tell(t, func(s *sim.Story) {
		s.StopBroker()
		order, err := s.Place("536365")
		if err != nil {
			t.Fatalf("Place() error = %v, want none: the order does not depend on the broker", err)
		}
		if confirmed := s.Now(); confirmed > 100*time.Millisecond {
			t.Errorf("confirmed after %s, want immediately", confirmed)
		}
		s.Wait(time.Minute)

		deadLetters := s.DeadLetters()
		if len(deadLetters) != 1 {
			t.Fatalf("%d dead letters after a minute, want the order's event", len(deadLetters))
		}
		deadLetter := deadLetters[0]
		if deadLetter.AggregateID != order.ID.String() || deadLetter.Status != dlq.Pending || deadLetter.Attempts != 5 || deadLetter.ErrorText == "" {
			t.Errorf("the dead letter is of order %s, %s after %d attempts because of %q, want order %s, pending, 5, and a cause",
				deadLetter.AggregateID, deadLetter.Status, deadLetter.Attempts, deadLetter.ErrorText, order.ID)
		}
		if p := s.Problems(); len(p) == 0 || s.Breaker().State == relay.BreakerClosed {
			t.Errorf("the breaker is %s and the relay's problems are %q, want it open and reported", s.Breaker().State, p)
		}

		if err := s.Suspend(deadLetter.EventID); err != nil {
			t.Fatalf("Suspend() error = %v", err)
		}
		left, err := s.Place("536366")
		if err != nil {
			t.Fatalf("Place() error = %v, want none in the outage", err)
		}
		s.Wait(30*time.Minute - s.Now())
		if n, deadLetters := s.Published(), s.DeadLetters(); n != 0 || len(deadLetters) != 2 {
			t.Errorf("%d events are published and %d are dead letters after half an hour without a broker, want 0 and 2", n, len(deadLetters))
		}

		s.StartBroker()
		s.Wait(10 * time.Minute)
		if at, ok := s.PublishedAt(left.ID); !ok || at > 31*time.Minute {
			t.Errorf("the other dead letter is published after %s (%t), want automatically within a minute", at, ok)
		}
		if _, ok := s.PublishedAt(order.ID); ok {
			t.Error("the suspended dead letter is published, want it to wait for its replay")
		}

		if err := s.Replay(deadLetter.EventID); err != nil {
			t.Fatalf("Replay() error = %v", err)
		}
		asked := s.Now()
		s.Wait(10 * time.Second)
		at, ok := s.PublishedAt(order.ID)
		if !ok || at < asked || at > asked+5*time.Second {
			t.Errorf("replayed %s after the request (%t), want within seconds", at-asked, ok)
		}
		t.Logf("dead after %s, replayed %s after the request", deadLetter.FirstFailedAt.Sub(deadLetter.CreatedAt), at-asked)
		if deadLetters := s.DeadLetters(); slices.ContainsFunc(deadLetters, func(l dlq.DeadLetter) bool {
			return l.Status != dlq.Resolved || l.Outcome.Kind != dlq.OutcomeReplayed
		}) || s.Published() != 2 {
			t.Errorf("%d events are published, the dead letters are %+v, want 2, and both resolved by replay", s.Published(), deadLetters)
		}
	})
}
