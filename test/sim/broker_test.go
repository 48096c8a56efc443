package sim

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay"
)

// The broker is down for six hours while orders arrive.
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

// The broker is frozen for an hour; its connections stay open.
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

// holds makes the relay hold events while the breaker is open.
func holds(s *settings) { s.relay.WhenOpen = relay.WhenOpenHold }

// wantStall fails the test unless the outage had an effect: the relay had at least this
// lag and reported a problem.
func wantStall(t *testing.T, seen outcome, behind time.Duration) {
	t.Helper()
	// Events published just before the outage were ahead of the sweep reader.
	if seen.behind < behind-time.Minute || len(seen.problems) == 0 {
		t.Errorf("lag of at most %s, %d problems; want %s and at least one", seen.behind, len(seen.problems), behind)
	}
}

// wantFull fails the test unless the relay reached its limit of events in flight.
func wantFull(t *testing.T, seen outcome) {
	t.Helper()
	if seen.inFlight != maxInFlight {
		t.Errorf("at most %d events in flight, want %d: the outage was too short to reach the limit", seen.inFlight, maxInFlight)
	}
}
