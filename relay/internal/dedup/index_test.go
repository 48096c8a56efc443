package dedup

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// idle reports that no aggregate has events in progress.
func idle(gocql.UUID) bool { return false }

// most is a limit that does not change.
func most(n int) func() int { return func() int { return n } }

func TestIndex_KeepsAnIDUntilTheSweepHasShownIt(t *testing.T) {
	t.Parallel()
	x := New(most(100))
	for i := range 50 {
		x.Add(relaytest.EventID(i), int64(i), true, time.Now())
	}
	// An event that the sweep has not read is kept, however many it has read.
	for i := range 1000 {
		x.AddShown(relaytest.EventID(1000+i), int64(1000+i), true)
	}
	for i := range 50 {
		if !x.Has(relaytest.EventID(i)) {
			t.Fatalf("event %d is evicted before the sweep has read it", i)
		}
	}
	if x.Fresh() != 50 || x.Shown() > 50 {
		t.Errorf("%d fresh and %d shown, want 50 and at most 50", x.Fresh(), x.Shown())
	}
	for i := range 1000 {
		if id := relaytest.EventID(1000 + i); !x.Has(id) && x.horizon < int64(1000+i) {
			t.Errorf("event %d is evicted, and not below the horizon %d", 1000+i, x.horizon)
		}
	}
	x.Show(relaytest.EventID(7), 7)
	if x.Fresh() != 49 || !x.Has(relaytest.EventID(7)) {
		t.Errorf("fresh = %d, want 49, and the event as shown", x.Fresh())
	}
}

// pass calls Pass until all is passed that was written before the time.
func pass(x *Index, upTo time.Time, every time.Duration) {
	for x.Pass(upTo.UnixMicro(), time.Now(), every) {
	}
}

// The sweep never reads a row that it has passed.
func TestIndex_LetsGoOfWhatTheSweepPassed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const every = 30 * time.Second
		x := New(most(1000))
		for i := range 10 {
			for j := range 10 {
				x.Add(relaytest.EventID(10*i+j), time.Now().UnixMicro(), true, time.Now())
			}
			time.Sleep(every)
			pass(x, time.Now().Add(-2*time.Minute), every)
		}
		if fresh := x.Fresh(); fresh < 40 || fresh > 60 {
			t.Errorf("fresh = %d, want the events of the last two minutes", fresh)
		}
		for range 3 {
			time.Sleep(every)
			pass(x, time.Now(), every)
		}
		if fresh := x.Fresh(); fresh != 0 || len(x.fresh) > 1 {
			t.Errorf("fresh = %d in %d parts, want none", fresh, len(x.fresh))
		}
	})
}

// A report that the index is nearly full ends at a lower percentage than it begins.
func TestNear(t *testing.T) {
	t.Parallel()
	var n Near
	for i, tt := range []struct {
		events        int
		near, changed bool
	}{{79, false, false}, {80, true, true}, {100, true, false}, {60, true, false}, {59, false, true}, {79, false, false}} {
		if near, changed := n.Update(tt.events, 100); near != tt.near || changed != tt.changed || n.Is() != near {
			t.Errorf("step %d, %d of 100: near %t, changed %t, want %t and %t", i, tt.events, near, changed, tt.near, tt.changed)
		}
	}
}

func TestLines_ForgetsAggregatesThatRestLongest(t *testing.T) {
	t.Parallel()
	x := NewLines(most(100), idle)
	for i := range 1000 {
		x.Keep(relaytest.EventID(i), Line{1, 2})
		x.skip(relaytest.EventID(i), 5, 6, time.Now())
	}
	for i := 950; i < 1000; i++ {
		if _, ok := x.Line(relaytest.EventID(i)); !ok {
			t.Fatalf("aggregate %d is evicted", i)
		}
	}
	if n := x.Len(); n > 100 {
		t.Errorf("%d aggregates in the index, want at most 100", n)
	}
	if len(x.gaps) > 150 {
		t.Errorf("gaps of %d aggregates kept", len(x.gaps))
	}
}

// The bounds in the documentation of the configuration.
func TestIndex_IsSmall(t *testing.T) {
	index, lines := New(most(1_000_000)), NewLines(most(500_000), idle)
	before := heapInUse()
	for i := range 1_000_000 {
		id := relaytest.EventID(i)
		index.Add(id, 0, true, time.Now())
	}
	events := heapInUse() - before
	for i := range 500_000 {
		id := relaytest.EventID(i)
		lines.Keep(id, Line{1, 2})
	}
	aggregates := heapInUse() - before - events
	t.Logf("%d bytes per event, %d per aggregate", events/1_000_000, aggregates/500_000)
	if events > BytesPerID*1_000_000 || aggregates > 100*500_000 {
		t.Errorf("%d MB for events, %d MB for aggregates", events>>20, aggregates>>20)
	}
	runtime.KeepAlive(index)
	runtime.KeepAlive(lines)
}

func heapInUse() int {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int(s.HeapAlloc)
}

// The caller passes the times of lookups: the package reads no clock.
func TestLines_GapsAreDueByTheTimeOfTheCaller(t *testing.T) {
	t.Parallel()
	x, a, began := NewLines(most(100), idle), relaytest.EventID(1), time.Unix(1, 0)
	x.Advance(a, Line{1, 2}, 5, began)
	x.LookedUp(a, 6, began)
	if x.GapsDue(a, 6, began.Add(gapsAgain-1)) || !x.GapsDue(a, 6, began.Add(gapsAgain)) {
		t.Errorf("GapsDue() does not change %s after the lookup", gapsAgain)
	}
}
