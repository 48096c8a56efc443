package sim

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay"
)

// The broker is gone for six hours while orders come in.
func TestBroker_GoneForSixHours(t *testing.T) {
	seen := simulate(t, 1, holds, func(w *world) {
		w.traffic(1500, 7*time.Hour)
		time.Sleep(30 * time.Minute)
		w.net.cut(broker)
		time.Sleep(6 * time.Hour)
		w.net.mend(broker)
	})
	wantStall(t, seen, 6*time.Hour)
	wantFull(t, seen)
	wantOnce(t, seen)
}

// The broker answers nothing for an hour, and its connections stay open.
func TestBroker_FrozenForAnHour(t *testing.T) {
	seen := simulate(t, 2, holds, func(w *world) {
		w.traffic(600, 2*time.Hour)
		time.Sleep(30 * time.Minute)
		w.kafka.freeze()
		time.Sleep(time.Hour)
		w.kafka.unfreeze()
	})
	wantStall(t, seen, time.Hour)
	wantFull(t, seen)
	wantOnce(t, seen)
}

// holds lets the relay keep what waits while the breaker is open.
func holds(s *settings) { s.relay.WhenOpen = relay.WhenOpenHold }

// wantStall fails the test unless an outage made itself felt: the relay fell
// behind by so much, and said that something was wrong.
func wantStall(t *testing.T, seen outcome, behind time.Duration) {
	t.Helper()
	// What was published just before the outage was ahead of the sweep.
	if seen.behind < behind-time.Minute || len(seen.problems) == 0 {
		t.Errorf("at most %s behind, %d problems; want %s and some", seen.behind, len(seen.problems), behind)
	}
}

// wantFull fails the test unless the relay filled its memory to the bound.
func wantFull(t *testing.T, seen outcome) {
	t.Helper()
	if seen.inFlight != maxInFlight {
		t.Errorf("at most %d events in flight, want %d: the outage was too short to try the bound", seen.inFlight, maxInFlight)
	}
}
