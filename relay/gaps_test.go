package relay

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// An event that was waited for in vain becomes visible later, behind the sweep. The next
// event of its aggregate finds it.
func TestGaps_FoundByTheNextEvent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		tb := &table{}
		tb.add(relaytest.Event(1, 2, "OrderUpdated"), 20, time.Now().Add(time.Hour))
		s := b.sequencer(tb)
		admit := func(seq int64) {
			t.Helper()
			if err := s.admit(t.Context(), cdclog.StoredEvent{Event: relaytest.Event(1, seq, "OrderUpdated"), Written: 10 * seq, Err: nil}, 0, func() {}); err != nil {
				t.Fatal(err)
			}
		}
		admit(1)
		admit(3)
		admit(4)
		time.Sleep(2 * time.Hour)
		admit(5)
		if got, want := published(b), []int64{1, 3, 4, 2, 5}; !slices.Equal(got, want) {
			t.Errorf("published %v, want %v", got, want)
		}
		if late, gaps := relaytest.Count(b.publisher.metrics.late), relaytest.Count(b.metrics.gaps); late != 1 || gaps != 1 {
			t.Errorf("late %v, gaps %v, want 1 and 1", late, gaps)
		}
	})
}

// Holes that are never filled cost ever fewer lookups.
func TestGaps_AreLookedUpAtGrowingDistances(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		tb := &table{}
		s := b.sequencer(tb)
		for seq := int64(1); seq <= 3; seq += 2 {
			if err := s.admit(t.Context(), cdclog.StoredEvent{Event: relaytest.Event(1, seq, "OrderUpdated"), Written: seq, Err: nil}, 0, func() {}); err != nil {
				t.Fatal(err)
			}
		}
		tb.asked = 0
		for seq := int64(4); seq <= 1003; seq++ {
			if err := s.admit(t.Context(), cdclog.StoredEvent{Event: relaytest.Event(1, seq, "OrderUpdated"), Written: seq, Err: nil}, 0, func() {}); err != nil {
				t.Fatal(err)
			}
		}
		if tb.asked < 5 || tb.asked > 12 {
			t.Errorf("%d lookups for 1,000 events behind a hole, want about ten", tb.asked)
		}
	})
}

// The gaps of an aggregate with events under way are remembered, however many other
// aggregates come and go: one that turns up is published, whatever ids are forgotten.
func TestGaps_OfAnAggregateUnderWayAreKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, func(c *Config) { c.MaxAggregates = 10 })
		defer b.close()
		p := b.publisher
		b.submit(relaytest.Event(1, 1, "OrderUpdated"), nil)
		b.drain(time.Minute)
		refused := b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotLeaderForPartition, Count: 20})
		defer refused.Remove()
		b.submit(relaytest.Event(1, 3, "OrderUpdated"), nil) // under way
		p.mu.Lock()
		for i := range 100 {
			p.memory.keep(eventID(i), line{1, 2})
		}
		p.memory.horizon = 1000
		p.mu.Unlock()
		late := cdclog.StoredEvent{Event: relaytest.Event(1, 2, "OrderUpdated"), Written: 20}
		v, err := p.offer(t.Context(), &offer{event: late.Event, written: late.Written, by: bySweep})
		if err != nil || v != taken {
			t.Errorf("offer() = %d, %v, want it taken", v, err)
		}
		if got, want := published(b), []int64{1, 3, 2}; !slices.Equal(got, want) {
			t.Errorf("published %v, want %v", got, want)
		}
	})
}

// While one caller fills a gap of an aggregate, nobody else hands on its events.
func TestPublisher_AClaimKeepsOthersOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		b.submit(relaytest.Event(1, 1, "OrderUpdated"), nil)
		release, err := b.publisher.claim(t.Context(), relaytest.Event(1, 1, "").AggregateID)
		if err != nil {
			t.Fatal(err)
		}
		for by := range byKey {
			if v, err := b.publisher.offer(t.Context(), &offer{event: relaytest.Event(1, 2, "OrderUpdated"), written: 20, by: by}); v != claimed || err != nil {
				t.Errorf("offer() by %d = %d, %v, want claimed", by, v, err)
			}
		}
		release()
		if v, err := b.publisher.offer(t.Context(), &offer{event: relaytest.Event(1, 2, "OrderUpdated"), written: 20, by: byTail}); v != taken || err != nil {
			t.Errorf("offer() after the claim = %d, %v, want taken", v, err)
		}
	})
}
