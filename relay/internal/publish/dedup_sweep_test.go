package publish

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// The sweep reads the rows of events that the tail reader found: they are settled with
// the acknowledgement and not before, and no event is published twice.
func TestPublisher_SweepFollowsTheTail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		settled := make(chan int64, 10)
		offered := func(e outbox.Event, written int64, by Source) Verdict {
			t.Helper()
			v, err := b.publisher.Offer(t.Context(), Offer{Event: e, Written: written, By: by, Settled: OnSettled(func() { settled <- e.Sequence })})
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		e := func(seq int64) outbox.Event { return relaytest.Event(1, seq, "OrderUpdated") }
		check := func(what string, got, want Verdict, settledNow int) {
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

		// Another event with a published number: the tail reader leaves it to the sweep, which
		// finds out that its topic does not contain it.
		other := e(2)
		other.ID = outbox.NewID()
		check("another second by the tail", offered(other, 21, ByTail), Left, 4)
		check("another second by the sweep", offered(other, 21, BySweep), Left, 4)
		v, err := b.publisher.Offer(t.Context(), Offer{Event: other, Written: 21, By: BySweep, Owner: true, Missing: true, Settled: OnSettled(func() { settled <- 2 })})
		if err != nil {
			t.Fatal(err)
		}
		check("another second, proven to be missing", v, Taken, 4)
		b.drain(time.Minute)
		if s := b.publisher.State(); s.Fresh != 0 || s.Shown != 3 {
			t.Errorf("%d fresh and %d shown in the index, want 0 and 3", s.Fresh, s.Shown)
		}
	})
}

// A shard that has more events than its share, because another one joined its process,
// keeps them all, and its tail reader waits until the sweep reader has passed enough.
func TestPublisher_ItsShareBecomesSmaller(t *testing.T) {
	t.Parallel()
	const whole, published = 100_000, 60_000
	pool := new(dedup.Pool)
	own, another := pool.Share(whole, 500_000), pool.Share(whole, 500_000)
	b := setup(t, func(c *Config) { c.Share = own })
	defer b.close()
	p, began := b.publisher, time.Now()
	own.Join()
	p.ask(func(c *cell) {
		for i := range published {
			c.ids.add(&item{event: outbox.Event{ID: outbox.IDFromUUID(relaytest.EventID(i))}, written: began.UnixMicro()}, true)
		}
	})
	check := func(what string, full bool, limit int) {
		t.Helper()
		if got := p.MemoryFull(); got != full {
			t.Errorf("%s: MemoryFull() = %t, want %t", what, got, full)
		}
		if _, got, _ := p.MemoryUse(); got != limit {
			t.Errorf("%s: the limit is %d events, want %d", what, got, limit)
		}
	}
	check("alone", false, whole)
	another.Join()
	check("with another one", true, whole/2)
	for i := range published {
		if in, _ := p.Indexed(relaytest.EventID(i)); !in {
			t.Fatalf("event %d is forgotten before the sweep reader has read its row", i)
		}
	}
	third := pool.Share(whole, 500_000)
	third.Join()
	third.Hold(2*whole - published)
	if got := another.ReadBack(); got != whole/3/4*3 {
		t.Errorf("no room is left: the other one may remember %d events, want those of its share, %d", got, whole/3/4*3)
	}
	p.ask(func(c *cell) { // the sweep reader has passed them
		for c.ids.index.Pass(began.Add(time.Second).UnixMicro(), began.Add(time.Hour), time.Second) {
		}
	})
	p.Pass(began.UnixMicro(), time.Second)
	if got := another.ReadBack(); got != published {
		t.Errorf("the sweep reader has passed %d events: the other one may remember %d, want as many", published, got)
	}
	check("after the sweep", false, whole/3)
	third.Leave()
	check("one has left", false, whole/2)
}

// While the sweep reader passes many events, others are offered and acknowledged.
func TestPublisher_PassingEventsDelaysNoOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		p, busy := b.publisher, make(chan struct{})
		p.ask(func(c *cell) {
			for i := range 1000 {
				c.ids.addUnsent(relaytest.EventID(i), 1)
			}
		})
		time.Sleep(time.Minute)
		go p.ask(func(*cell) { <-busy })
		synctest.Wait()
		go p.Pass(2, time.Second)
		synctest.Wait()
		go func() { defer close(busy); synctest.Wait() }()
		p.ask(func(c *cell) {
			if fresh := c.ids.index.Fresh(); fresh == 0 {
				t.Error("all events were passed before another input")
			}
		})
	})
}
