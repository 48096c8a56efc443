package capture

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
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
			if err := s.admit(t.Context(), cdclog.StoredEvent{Event: relaytest.Event(1, seq, "OrderUpdated"), Written: 10 * seq, Err: nil}, 0, publish.Settlement{}); err != nil {
				t.Fatal(err)
			}
		}
		admit(1)
		admit(3)
		admit(4)
		time.Sleep(2 * time.Hour)
		admit(5)
		if got, want := drainPublished(b), []int64{1, 3, 4, 2, 5}; !slices.Equal(got, want) {
			t.Errorf("published %v, want %v", got, want)
		}
		if late, gaps := relaytest.Count(b.published.Late), relaytest.Count(b.metrics.Gaps); late != 1 || gaps != 1 {
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
			if err := s.admit(t.Context(), cdclog.StoredEvent{Event: relaytest.Event(1, seq, "OrderUpdated"), Written: seq, Err: nil}, 0, publish.Settlement{}); err != nil {
				t.Fatal(err)
			}
		}
		tb.asked.Store(0)
		for seq := int64(4); seq <= 1003; seq++ {
			if err := s.admit(t.Context(), cdclog.StoredEvent{Event: relaytest.Event(1, seq, "OrderUpdated"), Written: seq, Err: nil}, 0, publish.Settlement{}); err != nil {
				t.Fatal(err)
			}
		}
		if n := tb.asked.Load(); n < 5 || n > 12 {
			t.Errorf("%d lookups for 1,000 events behind a hole, want about ten", n)
		}
	})
}

// While one caller fills a gap of an aggregate, nobody else hands on its events.
func TestPublisher_AClaimKeepsOthersOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		b.submit(relaytest.Event(1, 1, "OrderUpdated"))
		release, err := b.publisher.Claim(t.Context(), relaytest.Event(1, 1, "").AggregateID.UUID())
		if err != nil {
			t.Fatal(err)
		}
		for by := range publish.ByKey {
			if v, err := b.publisher.Offer(t.Context(), publish.Offer{Event: relaytest.Event(1, 2, "OrderUpdated"), Written: 20, By: by}); v != publish.Claimed || err != nil {
				t.Errorf("offer() by %d = %d, %v, want claimed", by, v, err)
			}
		}
		release()
		if v, err := b.publisher.Offer(t.Context(), publish.Offer{Event: relaytest.Event(1, 2, "OrderUpdated"), Written: 20, By: publish.ByTail}); v != publish.Taken || err != nil {
			t.Errorf("offer() after the claim = %d, %v, want taken", v, err)
		}
	})
}
