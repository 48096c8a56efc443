package bench

import (
	"sync/atomic"
	"testing"
	"time"
)

// sent returns a load of two writes of two events for each second, and what a consumer
// received: event i was stored after stored(i) since the begin of the load and came ms
// milliseconds later, or was lost where ms is 0.
func sent(d time.Duration, stored func(i int64) time.Duration, ms func(i int64) int) (*Load, *Arrivals) {
	l := &Load{Events: NewEvents("T", 4, 100), Rate: 4, Batch: 2, Duration: d}
	a := NewArrivals(l.Events, l.Total())
	l.began, l.committed = a.epoch, make([]atomic.Int64, l.Total())
	for i := range l.Total() {
		l.committed[i].Store(int64(stored(i)))
		if n := ms(i); n > 0 {
			a.at[i].Store(int64(stored(i) + time.Duration(n)*time.Millisecond))
		}
	}
	return l, a
}

// Latencies count in the interval in which an event was to be sent, and events in that in
// which they were stored. Neither the warm-up nor the time after the last interval counts.
func TestLoad_Intervals(t *testing.T) {
	t.Parallel()
	// Two events each at 0, 0.5, 1, ... 5.5 s; the warm-up ends at 1 s.
	l, a := sent(5*time.Second, func(i int64) time.Duration {
		if i == 7 {
			return 3100 * time.Millisecond // to be sent at 1.5 s
		}
		return time.Duration(i/2)*500*time.Millisecond + 10*time.Millisecond
	}, func(i int64) int {
		switch {
		case i < 4 || i >= 20:
			return 9000
		case i == 5:
			return 0
		case i == 12: // to be sent at 3 s
			return 70
		}
		return 20
	})
	got := l.Intervals(a, 2*time.Second, 2)
	if len(got) != 2 || got[0].End != 2 || got[1].End != 4 {
		t.Fatalf("intervals %+v, want 2 of 2 s", got)
	}
	if got[0].Stored != 3.5 || got[1].Stored != 4.5 {
		t.Errorf("%g and %g events/s stored, want 3.5 and 4.5", got[0].Stored, got[1].Stored)
	}
	for k, want := range []struct{ committed, intended float64 }{{20, 1620}, {70, 80}} {
		if c, i := got[k].Committed.Max, got[k].Intended.Max; c != want.committed || i != want.intended {
			t.Errorf("interval %d: at most %g ms since stored and %g since to be sent, want %g and %g", k, c, i, want.committed, want.intended)
		}
	}
}

// Only events that came after the kill, and waited for more than a second, count.
func TestLoad_Takeover(t *testing.T) {
	t.Parallel()
	l, a := sent(3*time.Second, func(i int64) time.Duration { return time.Duration(i/2) * 500 * time.Millisecond }, func(i int64) int {
		switch i {
		case 3: // stored at 0.5 s: before the kill
			return 1400
		case 6: // stored at 1.5 s
			return 1500
		case 8: // stored at 2 s
			return 1200
		case 9:
			return 0
		}
		return 20
	})
	killed := a.epoch.Add(2 * time.Second)
	a.producers = map[int64]time.Time{1: a.epoch, 2: killed.Add(800 * time.Millisecond), 3: killed.Add(900 * time.Millisecond)}
	want := Takeover{First: .9, Waited: 2, Longest: 1.5, Recovered: 1.2, After: 2}
	if got := l.Takeover(a, killed); got != want {
		t.Errorf("Takeover() = %+v, want %+v", got, want)
	}
}
