package publish

import (
	"slices"
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

// The gaps of an aggregate with events in progress are kept, however many other
// aggregates follow: an event that fills a gap is published, whichever ids are evicted.
func TestGaps_OfAnAggregateUnderWayAreKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, func(c *Config) { c.Share = new(dedup.Pool).Share(8, 10) })
		defer b.close()
		p := b.publisher
		b.submit(relaytest.Event(1, 1, "OrderUpdated"), nil)
		b.drain(time.Minute)
		refused := b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: 20})
		defer refused.Remove()
		b.submit(relaytest.Event(1, 3, "OrderUpdated"), nil) // in progress
		late := cdclog.StoredEvent{Event: relaytest.Event(1, 2, "OrderUpdated"), Written: 20}
		p.ask(func(c *cell) {
			for i := range 100 {
				c.lines.Keep(relaytest.EventID(i), dedup.Line{First: 1, Next: 2})
			}
			for i := range 200 { // more than are kept
				c.ids.add(&item{event: outbox.Event{ID: outbox.IDFromUUID(relaytest.EventID(1000 + i))}, written: 1000, shown: true}, true)
			}
			if c.ids.index.Horizon() != 1000 {
				t.Error("no id is evicted")
			}
		})
		v, err := p.Offer(t.Context(), Offer{Event: late.Event, Written: late.Written, By: BySweep})
		if err != nil || v != Taken {
			t.Errorf("offer() = %d, %v, want it taken", v, err)
		}
		b.drain(time.Hour)
		var got []int64
		for _, d := range b.consume("OrderUpdated") {
			got = append(got, d.Sequence)
		}
		if want := []int64{1, 3, 2}; !slices.Equal(got, want) {
			t.Errorf("published %v, want %v", got, want)
		}
	})
}

// A caller that offers the rows of an aggregate in sequence passes a settled dead letter. Its
// number is not skipped: it would be looked up and published when its id is forgotten.
func TestGaps_ASettledDeadLetterIsNone(t *testing.T) {
	t.Parallel()
	for _, busy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, nil)
			defer b.close()
			p, e := b.publisher, relaytest.Event(1, 1, "OrderUpdated")
			p.ask(func(c *cell) { c.ids.addUnsent(relaytest.Event(1, 2, "OrderUpdated").ID.UUID(), 20) })
			for seq := int64(1); seq <= 3; seq++ {
				b.submit(relaytest.Event(1, seq, "OrderUpdated"), nil)
				if !busy {
					b.drain(time.Minute)
				}
			}
			if n := p.Missing(e.AggregateID.UUID()); n != 0 {
				t.Errorf("busy %t: %d numbers are missing", busy, n)
			}
			b.drain(time.Minute)
			if n := len(b.consume("OrderUpdated")); n != 2 {
				t.Errorf("busy %t: %d records, want 1 and 3", busy, n)
			}
		})
	}
}
