package publish

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// offer is submit for other goroutines than that of the test.
func (b *fixture) offer(e outbox.Event, settled func()) {
	if err := b.publisher.Submit(b.t.Context(), cdclog.StoredEvent{Event: e}, BySweep, settled); err != nil {
		b.t.Errorf("submit(%s) error = %v", e.ID, err)
	}
}

// A lane that was removed may still be among those that wait for a partition: it does not remove the
// lane that its aggregate has now.
func TestStripe_ARemovedLaneRemovesNoOther(t *testing.T) {
	t.Parallel()
	var all stripes
	all.init(func() int { return 10 })
	e := relaytest.Event(1, 2, "OrderUpdated")
	s := all.lock(e.AggregateID.UUID())
	defer s.Unlock()
	removed := s.lane(e.AggregateID.UUID(), nil)
	s.rest(removed)
	now := s.lane(e.AggregateID.UUID(), nil)
	now.items, now.line.Next = append(now.items, &item{event: e}), 3
	s.rest(removed)
	if l := s.lane(e.AggregateID.UUID(), nil); l != now {
		t.Errorf("the lane has %d events and continues with %d, want one event and 3", len(l.items), l.line.Next)
	}
}

// Events of other stripes are published while one stripe is locked, and events of its own
// aggregates wait.
func TestPublisher_StripesProceedByThemselves(t *testing.T) { //nolint:paralleltest // it holds a lock, in real time
	b := setup(t, nil)
	defer b.close()
	p := b.publisher
	b.submit(relaytest.Event(0, 1, "OrderUpdated"), nil) // creates the topic
	b.drain(time.Minute)
	locked := &p.mu.stripes[0] // a caller that locks all of them waits for it, and holds none
	own, other := outbox.Event{}, outbox.Event{}
	for n := 1; own.Sequence == 0 || other.Sequence == 0; n++ {
		if e := relaytest.Event(n, 1, "OrderUpdated"); p.mu.of(e.AggregateID.UUID()) == locked {
			own = e
		} else {
			other = e
		}
	}
	locked.Lock()
	published := make(chan string, 2)
	go b.offer(own, func() { published <- "of the locked stripe" })
	go b.offer(other, func() { published <- "of another stripe" })
	select {
	case which := <-published:
		if which != "of another stripe" {
			t.Errorf("the event %s is published first", which)
		}
	case <-time.After(10 * time.Second):
		t.Error("no event is published while a stripe is locked")
	}
	select {
	case which := <-published:
		t.Errorf("the event %s is published too, while its stripe is locked", which)
	case <-time.After(50 * time.Millisecond):
	}
	locked.Unlock()
	if which := <-published; which != "of the locked stripe" {
		t.Errorf("the event %s is published twice", which)
	}
}

// A row whose aggregate could not be read is offered with its own id as aggregate, and with
// the right one after it is corrected, perhaps by another reader at the same time. The event
// is published once, and both callers learn of it.
func TestPublisher_AnEventOfferedWithTwoAggregates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		var all []outbox.Event
		var settled atomic.Int32
		var offers sync.WaitGroup
		for n := range 300 {
			e := relaytest.Event(n, 1, "OrderUpdated")
			unread := e
			unread.AggregateID, unread.Sequence = e.ID, 0
			all = append(all, e)
			for _, offered := range []outbox.Event{e, unread} {
				offers.Go(func() {
					b.offer(offered, func() { settled.Add(1) })
				})
			}
		}
		offers.Wait()
		b.drain(time.Minute)
		if got := settled.Load(); got != 600 {
			t.Errorf("%d offers are settled, want 600", got)
		}
		count := make(map[string]int)
		for _, d := range b.consume("OrderUpdated") {
			count[d.ID.String()]++
		}
		for i := range all {
			if n := count[all[i].ID.String()]; n != 1 {
				t.Errorf("event %d is published %d times", i, n)
			}
		}
	})
}

// An event begins once: not while an offer of it with another aggregate is in progress, and
// not after that was published.
func TestEventIDs_BeginAnEventOnce(t *testing.T) {
	t.Parallel()
	var ids eventIDs
	ids.init(func() int { return 100 })
	first := &item{event: relaytest.Event(1, 1, "OrderUpdated")}
	second := &item{event: first.event}
	second.event.AggregateID = second.event.ID
	if !ids.begin(first) || ids.begin(second) {
		t.Error("the event was in progress, and began again")
	}
	ids.end(first, true)
	if ids.begin(second) {
		t.Error("the event was published, and began again")
	}
	if n := ids.open.Load(); n != 0 {
		t.Errorf("%d events are in progress, want none", n)
	}
}

// Several readers offer events of different aggregates, most of them twice, while the broker
// refuses requests and the breaker opens: each event is published once, in sequence.
func TestPublisher_ManyReadersBesideFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, func(c *Config) { c.Spill = false })
		defer b.close()
		b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: 3})
		const readers, aggregates, events = 8, 12, 40
		var all []outbox.Event
		var settled atomic.Int32
		var work sync.WaitGroup
		for r := range readers {
			for a := range aggregates {
				for seq := range int64(events) {
					all = append(all, relaytest.Event(r*aggregates+a, seq+1, "OrderUpdated"))
				}
			}
			work.Go(func() {
				random := rand.New(rand.NewPCG(uint64(r), 1))
				for seq := range int64(events) {
					for a := range aggregates {
						e := relaytest.Event(r*aggregates+a, seq+1, "OrderUpdated")
						b.offer(e, func() { settled.Add(1) })
						if random.IntN(2) == 0 {
							b.offer(e, func() { settled.Add(1) })
						} else {
							settled.Add(1)
						}
					}
					time.Sleep(time.Duration(random.IntN(int(50 * time.Millisecond))))
				}
			})
		}
		time.Sleep(500 * time.Millisecond)
		away := b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
		time.Sleep(10 * time.Second)
		if s := b.publisher.State().Breaker.State; s == BreakerClosed {
			t.Error("the breaker is closed in the outage")
		}
		away.Remove()
		work.Wait()
		b.drain(10 * time.Minute)
		if got := settled.Load(); got != 2*int32(len(all)) {
			t.Errorf("%d offers are settled, want %d", got, 2*len(all))
		}
		relaytest.CheckOrder(t, b.consume("OrderUpdated"), all)
	})
}
