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
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// offer is submit for other goroutines than that of the test.
func (b *fixture) offer(e outbox.Event, settled func()) {
	if err := b.publisher.Submit(b.t.Context(), cdclog.StoredEvent{Event: e}, BySweep, OnSettled(settled)); err != nil {
		b.t.Errorf("submit(%s) error = %v", e.ID, err)
	}
}

// A lane that was removed may still be among the lanes that wait for a partition: it does not remove
// the lane that its aggregate has now.
func TestCell_ARemovedLaneRemovesNoOther(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	defer b.close()
	b.publisher.ask(func(c *cell) {
		e := relaytest.Event(1, 2, "OrderUpdated")
		removed := c.newLane(e.AggregateID.UUID(), dedup.Line{})
		removed.kept = true
		c.rest(removed)
		now := c.newLane(e.AggregateID.UUID(), dedup.Line{})
		now.items, now.line.Next = append(now.items, &item{event: e}), 3
		c.rest(removed)
		if l := c.lanes[e.AggregateID.UUID()]; l != now {
			t.Errorf("the lane has %d events and continues with %d, want one event and 3", len(l.items), l.line.Next)
		}
		now.items = nil
	})
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

// Several readers offer events of different aggregates, most of them twice, while the broker
// refuses requests and the breaker opens: each event is published once, in sequence.
func TestPublisher_ManyReadersBesideFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, func(c *Config) { c.WhenOpen = WhenOpenHold })
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
