package schedule

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// A message was stored in another data centre half an hour ago, for a minute later, while the
// connection was cut. Its rows arrive here one after the other, as hints, with their times of
// then. Until all of them are there a replica that has them does not answer.
func TestScheduler_RowsOfAnotherDataCentreArriveLate(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"minute", "minute and slot"} {
		t.Run(first, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			stored := time.Now().Add(-30 * time.Minute)
			m := message(stored.Add(time.Minute))
			m.CreatedAt = stored.UTC().Truncate(time.Millisecond)
			x := m.slot()
			put := func(stmt string, args ...any) {
				t.Helper()
				if err := b.Session.Query(stmt, args...).Exec(); err != nil {
					t.Fatal(err)
				}
			}
			putSlotRow := func() {
				put(putSlot+" USING TIMESTAMP ?", x.bucket, shardFor(x.id), x.at.UnixMilli(), x.id, x.topic, stored.UnixMicro())
			}
			put(putBucket+" USING TIMESTAMP ?", monthAt(x.bucket), x.bucket, stored.UnixMicro())
			if first == "minute and slot" {
				putSlotRow()
			}
			away := b.Node.Faults().MustAdd(faults.Rule{
				Match:  faults.Match{Kinds: []engine.OpKind{engine.OpRead}, Func: func(o engine.Op) bool { return o.Consistency == engine.All }},
				Effect: faults.Effect{Failure: faults.Unavailable(1, 2)},
			})
			world.Run(t, b.scheduler(t).Run)
			for b.Node.Faults().Hits(away) < 3 { // some sweeps
				time.Sleep(10 * time.Millisecond)
			}
			if first == "minute" {
				putSlotRow()
			}
			put(putRow, m.CreatedAt.Add(-writtenBefore).UnixMicro(), m.Topic, m.Key, m.Payload, m.ContentType, m.Headers, m.Client,
				m.CreatedAt.UnixMilli(), m.DeliverAt.UnixMilli(), m.ID)
			b.Node.Faults().Clear()
			for b.count(t, "outbox_messages") != 1 {
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
}

// The replicas that answer a transaction do not have the slot yet that another one has.
func TestScheduler_SlotIsNotAtTheSerialQuorumYet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := time.Now()
	m := message(now.Add(-time.Second))
	if hand, err := b.scheduler(t).decide(t.Context(), &dueMessage{m.slot(), *m}, now); hand || err != nil {
		t.Fatalf("decide() = %v, %v; want to leave the message for the next sweep", hand, err)
	}
	x := m.slot()
	if err := b.Session.Query(putSlot+" USING TIMESTAMP ?", append(x.key(), x.topic, now.Add(-time.Minute).UnixMicro())...).Exec(); err != nil {
		t.Fatal(err)
	}
	if n := b.count(t, "schedule_slots"); n != 1 {
		t.Errorf("%d slots: the message is never released", n)
	}
}

// The mark of a cancellation is at QUORUM: the local quorum may lack it after the hour in which
// the slot cannot be written again. So nothing is released by what a local quorum has.
func TestScheduler_ReadsRowsWhereTheyAreMarked(t *testing.T) {
	t.Parallel()
	for name, n := range map[string]int{"one": 1, "several": 3, "several, one by one": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			now := time.Now()
			var slots []slot
			for range n {
				m := message(now.Add(-time.Second))
				m.ID[15] &^= shards - 1 // one partition
				b.put(t, now.Add(-time.Minute), m)
				slots = append(slots, m.slot())
			}
			reads := faults.Match{Kinds: []engine.OpKind{engine.OpRead}, Table: "scheduled_messages"}
			if name == "several, one by one" {
				b.Node.Faults().MustAdd(faults.Rule{Match: reads, Effect: faults.Effect{Failure: faults.Unavailable(1, 2)}, Count: 1})
			}
			reads.Func = func(o engine.Op) bool { return o.Consistency != engine.Quorum }
			local := b.Node.Faults().MustAdd(faults.Rule{Match: reads, Effect: faults.Effect{Delay: time.Nanosecond}})
			b.scheduler(t).release(t.Context(), slots, func(x slot, err error) {
				if err != nil {
					t.Errorf("release of %s = %v", x.id, err)
				}
			})
			if hits := b.Node.Faults().Hits(local); hits > 0 {
				t.Errorf("%d reads of rows are not at QUORUM", hits)
			}
			if got := b.count(t, "outbox_messages"); got != n {
				t.Errorf("%d of %d messages are in the outbox", got, n)
			}
		})
	}
}
