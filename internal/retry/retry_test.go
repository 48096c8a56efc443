package retry

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestBackoff_DoublesWithJitterAndIsBounded(t *testing.T) {
	t.Parallel()
	const lo, hi = time.Second, 5 * time.Second
	for attempts, most := range map[int]time.Duration{0: lo, 1: lo, 2: 2 * lo, 3: 4 * lo, 4: hi, 1 << 40: hi} {
		seen := make(map[time.Duration]bool)
		for range 100 {
			d := Backoff(lo, hi, attempts)
			if d < most/2 || d > most {
				t.Fatalf("Backoff after %d attempts = %s, want %s to %s", attempts, d, most/2, most)
			}
			seen[d] = true
		}
		if len(seen) < 2 {
			t.Errorf("after %d attempts the wait is always the same", attempts)
		}
	}
	for attempts, most := range map[int]time.Duration{1: lo, 2: 3 * lo, 3: hi} {
		if d := BackoffBy(3, lo, hi, attempts); d < most/2 || d > most {
			t.Errorf("BackoffBy(3) after %d attempts = %s, want %s to %s", attempts, d, most/2, most)
		}
	}
	if d := BackoffBy(1, lo, hi, 1<<40); d > lo {
		t.Errorf("BackoffBy(1) = %s, above the first wait", d)
	}
	if d := Backoff(time.Hour, time.Second, 3); d > time.Second {
		t.Errorf("Backoff = %s, above its limit", d)
	}
	if d := Backoff(0, 0, 3); d != 0 {
		t.Errorf("Backoff(0, 0) = %s, want 0", d)
	}
}

func TestRequired_IsAtMostFiveSeconds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		hi, most time.Duration
	}{{30 * time.Second, 5 * time.Second}, {2 * time.Second, 2 * time.Second}} {
		for range 100 {
			if d := Required(100*time.Millisecond, c.hi, 20); d < c.most/2 || d > c.most {
				t.Fatalf("Required up to %s = %s, want %s to %s", c.hi, d, c.most/2, c.most)
			}
		}
	}
}

// A budget pauses longer each time, and never beyond its deadline.
func TestBudget_EndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		b, pauses := Until(t.Context(), began.Add(10*time.Second), 100*time.Millisecond), 0
		for b.Pause() {
			pauses++
		}
		// At most 0.1, 0.2, 0.4 and 0.8 s, then seconds; at least half as long.
		if took := time.Since(began); took > 10*time.Second || took < 9*time.Second || pauses < 12 || pauses > 24 {
			t.Errorf("%d pauses in %s, want 12 to 24 in about 10s", pauses, took)
		}
	})
}
