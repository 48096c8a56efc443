package publish

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/topics"
)

// A lane's records stay in one batch: the partitioner rejects a record that would begin
// another one, and all later records, also if another lane has begun that batch.
func TestPartitioner_KeepsALaneInOneBatch(t *testing.T) {
	t.Parallel()
	const partitions = 3
	topic := partitioner(&topics.Partitions{Log: relaytest.Logger(t)}).ForTopic("OrderCreated").(*lanesOfTopic)
	record := func(l *lane) *kgo.Record { return &kgo.Record{Key: l.id[:], Context: &l.ctx} }
	// as calls the partitioner like the client; batch means that r would begin a batch.
	as := func(r *kgo.Record, batch bool) int {
		p := topic.Partition(r, partitions)
		if p >= 0 && batch {
			topic.OnNewBatch()
			p = topic.Partition(r, partitions)
		}
		return p
	}
	a, b := newLane(relaytest.Event(0, 1, "OrderCreated").AggregateID, dedup.Line{}), newLane(relaytest.Event(1, 1, "OrderCreated").AggregateID, dedup.Line{})
	first := as(record(a), true)
	if first < 0 {
		t.Fatalf("the first record of a lane goes to %d", first)
	}
	if p := as(record(a), false); p != first {
		t.Errorf("the next one goes to %d, want %d, where it joins the batch", p, first)
	}
	if p := topic.Partition(record(a), 1000); p != first {
		t.Errorf("with more partitions the next one goes to %d, want %d, where the others are", p, first)
	}
	r := record(a)
	if p := as(r, true); p != turnedAway || !turned(r) {
		t.Errorf("one that would begin another batch goes to %d, want it turned away", p)
	}
	if p := as(record(b), true); p < 0 {
		t.Errorf("a record of another lane goes to %d", p)
	}
	r = record(a)
	if p := as(r, false); p != turnedAway || !turned(r) {
		t.Errorf("one behind what was turned away goes to %d, want it turned away too", p)
	}
	a.partition.Store(-1) // no record is outstanding
	a.turned.Store(false)
	if p := as(record(a), true); p != first {
		t.Errorf("when all are back the next one goes to %d, want %d", p, first)
	}
}

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
