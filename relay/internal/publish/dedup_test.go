package publish

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

func TestMemory_KeepsAnIDUntilTheSweepHasShownIt(t *testing.T) {
	t.Parallel()
	m := newMemory(100, 100)
	for i := range 50 {
		m.addAs(relaytest.EventID(i), int64(i), true)
	}
	// An event that the sweep has not read is kept, however many it has read.
	for i := range 1000 {
		m.shownAs(relaytest.EventID(1000+i), int64(1000+i), true)
	}
	for i := range 50 {
		if !m.has(relaytest.EventID(i)) {
			t.Fatalf("event %d is evicted before the sweep has read it", i)
		}
	}
	if fresh, shown, _ := m.size(); fresh != 50 || shown > 50 {
		t.Errorf("size() = %d, %d, want 50 fresh and at most 50 shown", fresh, shown)
	}
	for i := range 1000 {
		if id := relaytest.EventID(1000 + i); !m.has(id) && m.horizon < int64(1000+i) {
			t.Errorf("event %d is evicted, and not below the horizon %d", 1000+i, m.horizon)
		}
	}
	m.show(relaytest.EventID(7), 7)
	if fresh, _, _ := m.size(); fresh != 49 || !m.has(relaytest.EventID(7)) {
		t.Errorf("fresh = %d, want 49, and the event as shown", fresh)
	}
}

// The sweep never reads a row that it has passed.
func TestMemory_LetsGoOfWhatTheSweepPassed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const every = 30 * time.Second
		m := newMemory(1000, 1000)
		for i := range 10 {
			for j := range 10 {
				m.addAs(relaytest.EventID(10*i+j), time.Now().UnixMicro(), true)
			}
			time.Sleep(every)
			m.pass(time.Now().Add(-2*time.Minute).UnixMicro(), time.Now(), every)
		}
		if fresh, _, _ := m.size(); fresh < 40 || fresh > 60 {
			t.Errorf("fresh = %d, want the events of the last two minutes", fresh)
		}
		for range 3 {
			time.Sleep(every)
			m.pass(time.Now().UnixMicro(), time.Now(), every)
		}
		if fresh, _, _ := m.size(); fresh != 0 || len(m.fresh) > 1 {
			t.Errorf("fresh = %d in %d parts, want none", fresh, len(m.fresh))
		}
	})
}

func TestMemory_FillsUp(t *testing.T) {
	t.Parallel()
	m := newMemory(10, 10)
	for i := range 10 {
		if m.full() {
			t.Fatalf("full at %d of 10", i)
		}
		m.addAs(relaytest.EventID(i), 0, true)
	}
	if !m.full() {
		t.Error("not full at 10 of 10")
	}
	m.show(relaytest.EventID(3), 0)
	if m.full() {
		t.Error("full at 9 of 10")
	}
}

func TestMemory_ForgetsAggregatesThatRestLongest(t *testing.T) {
	t.Parallel()
	m := newMemory(10, 100)
	for i := range 1000 {
		m.keep(relaytest.EventID(i), line{1, 2})
		m.skip(relaytest.EventID(i), 5, 6)
	}
	for i := 950; i < 1000; i++ {
		if _, ok := m.line(relaytest.EventID(i)); !ok {
			t.Fatalf("aggregate %d is evicted", i)
		}
	}
	if _, _, n := m.size(); n > 100 {
		t.Errorf("%d aggregates in the index, want at most 100", n)
	}
	if len(m.gaps) > 150 {
		t.Errorf("gaps of %d aggregates kept", len(m.gaps))
	}
}

// The bounds in the documentation of the configuration.
func TestMemory_IsSmall(t *testing.T) {
	m := newMemory(1_000_000, 500_000)
	before := heapInUse()
	for i := range 1_000_000 {
		m.addAs(relaytest.EventID(i), 0, true)
	}
	events := heapInUse() - before
	for i := range 500_000 {
		m.keep(relaytest.EventID(i), line{1, 2})
	}
	aggregates := heapInUse() - before - events
	t.Logf("%d bytes per event, %d per aggregate", events/1_000_000, aggregates/500_000)
	if events > 50*1_000_000 || aggregates > 100*500_000 {
		t.Errorf("%d MB for events, %d MB for aggregates", events>>20, aggregates>>20)
	}
	runtime.KeepAlive(m)
}

func heapInUse() int {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int(s.HeapAlloc)
}

// The sweep reads the rows of events that the tail reader found: they are settled with
// the acknowledgement and not before, and no event is published twice.
func TestPublisher_SweepFollowsTheTail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		settled := make(chan int64, 10)
		offered := func(e outbox.Event, written int64, by source) verdict {
			t.Helper()
			v, err := b.publisher.Offer(t.Context(), &Offer{Event: e, Written: written, By: by, Settled: func() { settled <- e.Sequence }})
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		e := func(seq int64) outbox.Event { return relaytest.Event(1, seq, "OrderUpdated") }
		check := func(what string, got, want verdict, settledNow int) {
			t.Helper()
			if got != want || len(settled) != settledNow {
				t.Errorf("%s: verdict %d and %d settled, want %d and %d", what, got, len(settled), want, settledNow)
			}
		}
		check("the tail's first", offered(e(1), 10, ByTail), Taken, 0)
		check("its row by the sweep, before the acknowledgement", offered(e(1), 10, BySweep), Repeated, 0)
		check("the third", offered(e(3), 30, ByTail), Ahead, 0)
		b.drain(time.Minute)
		check("the second, when the first is acknowledged", offered(e(2), 20, ByTail), Taken, 2)
		b.drain(time.Minute)
		check("its row by the sweep", offered(e(2), 20, BySweep), Repeated, 4)

		// Another event with a published number: the tail reader leaves it to the sweep.
		other := e(2)
		other.ID = outbox.NewID()
		check("another second by the tail", offered(other, 21, ByTail), Left, 4)
		check("another second by the sweep", offered(other, 21, BySweep), Taken, 4)
		b.drain(time.Minute)
		if s := b.publisher.State(); s.Fresh != 0 || s.Shown != 3 {
			t.Errorf("%d fresh and %d shown in the index, want 0 and 3", s.Fresh, s.Shown)
		}
	})
}
