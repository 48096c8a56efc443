package publish

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// The memory of a published event is used for the next one: its lane, its item and its record. A lane
// that a timer may still have is not.
func TestPublisher_UsesTheMemoryOfPublishedEventsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		var all []outbox.Event
		for aggregate := range 4 {
			for seq := range int64(3) {
				e := relaytest.Event(aggregate, seq+1, "OrderUpdated")
				if aggregate == 2 {
					e.DeliverAt = time.Now().Add(time.Minute)
				}
				if aggregate == 3 {
					e.Headers = map[string]string{outbox.HeaderPartitionKey: "customer", outbox.HeaderTraceParent: "parent"}
				}
				all = append(all, e)
				b.submit(e, nil)
			}
			b.drain(time.Hour)
		}
		b.publisher.ask(func(c *cell) {
			if lanes, items, slots := len(c.free), len(c.items), len(b.publisher.driver.slots); lanes != 1 || items != 2 || slots < 1 || slots > 3 {
				t.Errorf("%d lanes, %d items and %d slots are unused, want one, two and up to 3", lanes, items, slots)
			}
		})
		got := make(map[outbox.ID]outbox.Event)
		for _, d := range b.consume("OrderUpdated") {
			got[d.ID] = d.Event
		}
		for _, e := range all {
			d := got[e.ID]
			if d.AggregateID != e.AggregateID || d.Sequence != e.Sequence || string(d.Payload) != string(e.Payload) || string(d.Key()) != string(e.Key()) || len(d.Headers) != len(e.Headers) {
				t.Errorf("the topic contains %+v, want %+v", d, e)
			}
		}
	})
}

// A lane keeps no payload of a published event while later ones wait in it.
func TestLane_KeepsNoPayloadOfAPublishedEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		all := relaytest.Events(1, 2, "OrderUpdated")
		all[1].DeliverAt = time.Now().Add(time.Minute)
		b.submit(all[0], nil)
		b.submit(all[1], nil)
		time.Sleep(time.Second)
		b.publisher.ask(func(c *cell) {
			l := c.lanes[all[0].AggregateID.UUID()]
			if len(l.items) != 1 || l.first.event.Payload != nil {
				t.Errorf("the lane has %d events and the payload %q, want one event and none", len(l.items), l.first.event.Payload)
			}
		})
		b.drain(time.Hour)
	})
}
