package sim

import (
	"testing"
	"time"
)

// One batch in four fails in one of the known ways, and is then applied immediately, a
// minute later and more than once, or never.
func TestBatches_EveryFate(t *testing.T) {
	seen := simulate(t, 10, nil, func(w *world) {
		w.traffic(600, 2*time.Hour)
		w.failBatches(0.03)
		time.Sleep(2 * time.Hour)
	})
	if seen.repeatedRows < 50 {
		t.Errorf("%d log rows repeat an event, want many", seen.repeatedRows)
	}
	wantOnce(t, seen)
}

// One conditional write in four times out: decided and invisible, applied, or not
// applied. Cancellations and Idempotency-Keys depend on them.
func TestCAS_EveryFate(t *testing.T) {
	seen := simulate(t, 11, nil, func(w *world) {
		w.traffic(600, 2*time.Hour)
		w.failCAS(0.08)
		time.Sleep(2 * time.Hour)
	})
	wantOnce(t, seen)
}

// wantOnce fails the test if a topic contains an event twice.
func wantOnce(t *testing.T, seen outcome) {
	t.Helper()
	if seen.duplicates != 0 {
		t.Errorf("%d duplicates, want none", seen.duplicates)
	}
}
