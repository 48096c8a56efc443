package sim

import (
	"testing"
	"time"
)

// One batch in four fails in one of the ways in which batches fail, and then is
// applied at once, a minute later and more than once, or never.
func TestBatches_EveryFate(t *testing.T) {
	seen := simulate(t, 10, nil, func(w *world) {
		w.traffic(600, 2*time.Hour)
		w.failBatches(0.03)
		time.Sleep(2 * time.Hour)
	})
	if seen.repeatedRows < 50 {
		t.Errorf("%d log rows repeated an event, want many", seen.repeatedRows)
	}
	wantOnce(t, seen)
}

// One conditional write in four times out: decided and invisible, applied, or
// nothing at all. Cancellations and Idempotency-Keys depend on them.
func TestCAS_EveryFate(t *testing.T) {
	seen := simulate(t, 11, nil, func(w *world) {
		w.traffic(600, 2*time.Hour)
		w.failCAS(0.08)
		time.Sleep(2 * time.Hour)
	})
	wantOnce(t, seen)
}

// wantOnce fails the test if any event is in its topic twice.
func wantOnce(t *testing.T, seen outcome) {
	t.Helper()
	if seen.duplicates != 0 {
		t.Errorf("%d duplicates, want none", seen.duplicates)
	}
}
