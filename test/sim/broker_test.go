package sim

import (
	"testing"
	"time"
)

// The broker is gone for six hours while orders come in.
func TestBroker_GoneForSixHours(t *testing.T) {
	seen := simulate(t, 1, nil, func(w *world) {
		w.traffic(1500, 7*time.Hour)
		time.Sleep(30 * time.Minute)
		w.net.cut(broker)
		time.Sleep(6 * time.Hour)
		w.net.mend(broker)
	})
	wantStall(t, seen, 6*time.Hour)
	if seen.duplicates != 0 {
		t.Errorf("%d duplicates, want none", seen.duplicates)
	}
}

// The broker answers nothing for an hour, and its connections stay open.
func TestBroker_FrozenForAnHour(t *testing.T) {
	seen := simulate(t, 2, nil, func(w *world) {
		w.traffic(600, 2*time.Hour)
		time.Sleep(30 * time.Minute)
		w.kafka.freeze()
		time.Sleep(time.Hour)
		w.kafka.unfreeze()
	})
	wantStall(t, seen, time.Hour)
	if seen.duplicates != 0 {
		t.Errorf("%d duplicates, want none", seen.duplicates)
	}
}

// wantStall fails the test unless an outage of so long made itself felt: the
// relay fell behind, filled its memory to the bound, and said that something
// was wrong.
func wantStall(t *testing.T, seen outcome, outage time.Duration) {
	t.Helper()
	if seen.behind < outage || seen.inFlight < 50 || len(seen.problems) == 0 {
		t.Errorf("at most %d events in flight, %s behind, problems %v; an outage of %s should show",
			seen.inFlight, seen.behind, seen.problems, outage)
	}
}
