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

func TestIndex_KeepsAnIDUntilTheSweepHasShownIt(t *testing.T) {
	t.Parallel()
	x := New(100, 100, idle)
	for i := range 50 {
		x.Add(relaytest.EventID(i), int64(i), true)
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
	if fresh, shown, _ := x.Size(); fresh != 50 || shown > 50 {
		t.Errorf("size() = %d, %d, want 50 fresh and at most 50 shown", fresh, shown)
	}
	for i := range 1000 {
		if id := relaytest.EventID(1000 + i); !x.Has(id) && x.horizon < int64(1000+i) {
			t.Errorf("event %d is evicted, and not below the horizon %d", 1000+i, x.horizon)
		}
	}
	x.Show(relaytest.EventID(7), 7)
	if fresh, _, _ := x.Size(); fresh != 49 || !x.Has(relaytest.EventID(7)) {
		t.Errorf("fresh = %d, want 49, and the event as shown", fresh)
	}
}

// The sweep never reads a row that it has passed.
func TestIndex_LetsGoOfWhatTheSweepPassed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const every = 30 * time.Second
		x := New(1000, 1000, idle)
		for i := range 10 {
			for j := range 10 {
				x.Add(relaytest.EventID(10*i+j), time.Now().UnixMicro(), true)
			}
			time.Sleep(every)
			x.Pass(time.Now().Add(-2*time.Minute).UnixMicro(), time.Now(), every)
		}
		if fresh, _, _ := x.Size(); fresh < 40 || fresh > 60 {
			t.Errorf("fresh = %d, want the events of the last two minutes", fresh)
		}
		for range 3 {
			time.Sleep(every)
			x.Pass(time.Now().UnixMicro(), time.Now(), every)
		}
		if fresh, _, _ := x.Size(); fresh != 0 || len(x.fresh) > 1 {
			t.Errorf("fresh = %d in %d parts, want none", fresh, len(x.fresh))
		}
	})
}

func TestIndex_FillsUp(t *testing.T) {
	t.Parallel()
	x := New(10, 10, idle)
	for i := range 10 {
		if x.Full() {
			t.Fatalf("full at %d of 10", i)
		}
		x.Add(relaytest.EventID(i), 0, true)
	}
	if !x.Full() {
		t.Error("not full at 10 of 10")
	}
	x.Show(relaytest.EventID(3), 0)
	if x.Full() {
		t.Error("full at 9 of 10")
	}
}

func TestIndex_ForgetsAggregatesThatRestLongest(t *testing.T) {
	t.Parallel()
	x := New(10, 100, idle)
	for i := range 1000 {
		x.Keep(relaytest.EventID(i), Line{1, 2})
		x.skip(relaytest.EventID(i), 5, 6)
	}
	for i := 950; i < 1000; i++ {
		if _, ok := x.Line(relaytest.EventID(i)); !ok {
			t.Fatalf("aggregate %d is evicted", i)
		}
	}
	if _, _, n := x.Size(); n > 100 {
		t.Errorf("%d aggregates in the index, want at most 100", n)
	}
	if len(x.gaps) > 150 {
		t.Errorf("gaps of %d aggregates kept", len(x.gaps))
	}
}

// The bounds in the documentation of the configuration.
func TestIndex_IsSmall(t *testing.T) {
	x := New(1_000_000, 500_000, idle)
	before := heapInUse()
	for i := range 1_000_000 {
		x.Add(relaytest.EventID(i), 0, true)
	}
	events := heapInUse() - before
	for i := range 500_000 {
		x.Keep(relaytest.EventID(i), Line{1, 2})
	}
	aggregates := heapInUse() - before - events
	t.Logf("%d bytes per event, %d per aggregate", events/1_000_000, aggregates/500_000)
	if events > BytesPerID*1_000_000 || aggregates > 100*500_000 {
		t.Errorf("%d MB for events, %d MB for aggregates", events>>20, aggregates>>20)
	}
	runtime.KeepAlive(x)
}

func heapInUse() int {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int(s.HeapAlloc)
}
