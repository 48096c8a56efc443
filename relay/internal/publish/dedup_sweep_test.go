package publish

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox"
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
			v, err := b.publisher.Offer(t.Context(), Offer{Event: e, Written: written, By: by, Settled: func() { settled <- e.Sequence }})
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
		v, err := b.publisher.Offer(t.Context(), Offer{Event: other, Written: 21, By: BySweep, Owner: true, Missing: true, Settled: func() { settled <- 2 }})
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
