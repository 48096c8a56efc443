package publish

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// If an aggregate has more events than fit in one batch, the rejected records are sent in
// order as soon as none is outstanding, and do not count as failures.
func TestPublisher_AnAggregateInManyBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		var all []outbox.Event
		for seq := range int64(500) {
			e := relaytest.Event(0, seq+1, "OrderCreated")
			all = append(all, e)
			b.submit(e, nil)
			if seq%7 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		b.drain(time.Minute)
		relaytest.CheckOrder(t, b.consume("OrderCreated"), all)
		for _, class := range []failure.Class{failure.Transient, failure.Permanent, failure.Stopped} {
			if n := relaytest.Count(b.publisher.Metrics.Failures.WithLabelValues(class.String())); n != 0 {
				t.Errorf("%v events failed as %s, want none", n, class)
			}
		}
	})
}
