package schedule

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// Messages that are due together share statements. Each is released once, also
// if a statement for several of them fails, because one of them cannot be read
// or written. A cancelled message, one without its row and one whose release
// was cut off are among them.
func TestScheduler_ReleasesTogether(t *testing.T) {
	t.Parallel()
	several := func(table string) faults.Match {
		return faults.Match{Kinds: []engine.OpKind{engine.OpUnloggedBatch}, Table: table}
	}
	var reads atomic.Int32
	for name, match := range map[string]faults.Match{
		"without failures":       {},
		"no row is written":      several("outbox_messages"),
		"no message is removed":  several("scheduled_messages"),
		"no slot is removed":     several("schedule_slots"),
		"the messages, not read": {Kinds: []engine.OpKind{engine.OpRead}, Table: "scheduled_messages", Func: func(engine.Op) bool { return reads.Add(1) == 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			now := time.Now()
			var ms []*Message
			var slots []slot
			for range releaseMost {
				m := message(now.Add(-5 * time.Second))
				m.ID[15] &^= shards - 1 // one partition
				ms, slots = append(ms, m), append(slots, m.slot())
			}
			cancelled, cutOff, missing := ms[3], ms[4], ms[5]
			b.put(t, now.Add(-time.Minute), append(ms[:5:5], ms[6:]...)...)
			if err := b.Cancel(t.Context(), cancelled, now); err != nil {
				t.Fatal(err)
			}
			if match.Kinds != nil { // it has a statement of its own
				if won, err := b.release(t.Context(), cutOff, now.Add(-2*handFresh)); err != nil || !won {
					t.Fatalf("release() = %t, %v", won, err)
				}
			}
			if err := b.putSlot(t.Context(), missing.slot()); err != nil {
				t.Fatal(err)
			}
			if match.Kinds != nil {
				b.Node.Faults().MustAdd(faults.Rule{Match: match, Effect: faults.Effect{Failure: faults.Unavailable(0, 1)}})
			}
			var batches, alone atomic.Int32
			count := func(n *atomic.Int32, kinds ...engine.OpKind) {
				b.Node.Faults().MustAdd(faults.Rule{
					Match:  faults.Match{Kinds: kinds, Func: func(engine.Op) bool { n.Add(1); return false }},
					Effect: faults.Effect{Delay: time.Nanosecond},
				})
			}
			count(&batches, engine.OpUnloggedBatch)
			count(&alone, engine.OpWrite)
			var mu sync.Mutex
			ends := map[gocql.UUID]int{}
			b.scheduler(t).release(t.Context(), slots, func(x slot, err error) {
				if err != nil {
					t.Errorf("release of %s = %v", x.id, err)
				}
				mu.Lock()
				defer mu.Unlock()
				ends[x.id]++
			})
			events := b.readOutbox(t)
			for _, m := range ms {
				if ends[m.ID] != 1 {
					t.Errorf("the release of %s ended %d times", m.ID, ends[m.ID])
				}
				if e, out := events[m.ID]; out == (m == cancelled || m == missing) || out && e.At.Before(now.Truncate(time.Millisecond)) {
					t.Errorf("message %s, cancelled %t, missing %t, cut off %t: in the outbox %t, written at %s after %s",
						m.ID, m == cancelled, m == missing, m == cutOff, out, e.At, now)
				}
			}
			if n := b.count(t, "scheduled_messages"); n != 1 {
				t.Errorf("%d messages are left, want the cancelled one", n)
			}
			if n := b.count(t, "schedule_slots"); n != 1 {
				t.Errorf("%d slots are left, want that without a message", n)
			}
			if n := int(batches.Load() + alone.Load()); match.Kinds == nil && n > releaseMost/2 {
				t.Errorf("%d writes beside the decisions, for %d messages", n, len(ms))
			}
		})
	}
}

// A message whose decision takes long does not delay others.
func TestScheduler_WaitsForNoOther(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := time.Now()
	var ms []*Message
	for range 10 {
		ms = append(ms, message(now.Add(-time.Second)))
	}
	b.put(t, now.Add(-time.Minute), ms...)
	b.Node.Faults().MustAdd(faults.Rule{
		Match:  faults.Match{Kinds: []engine.OpKind{engine.OpCAS}, Table: "schedule_slots"},
		Effect: faults.Effect{Delay: 3 * time.Second}, Count: 1,
	})
	var slots []slot
	for _, m := range ms {
		slots = append(slots, m.slot())
	}
	released := make(chan struct{})
	go func() {
		defer close(released)
		b.scheduler(t).release(context.WithoutCancel(t.Context()), slots, func(slot, error) {})
	}()
	world.Eventually(t, "the others are released and removed", func() bool {
		return b.count(t, "outbox_messages") == len(ms)-1 && b.count(t, "scheduled_messages") == 1
	})
	<-released
	if n := b.count(t, "outbox_messages"); n != len(ms) {
		t.Errorf("%d messages are in the outbox, want %d", n, len(ms))
	}
}

// Rows with different write times are never written by one statement: each
// repetition of a release must write the row that was decided.
func TestScheduler_WriteTimesDoNotMix(t *testing.T) {
	t.Parallel()
	b := setup(t)
	now := time.Now()
	one, other := &dueMessage{Message: *message(now)}, &dueMessage{Message: *message(now)}
	one.releaseAt, other.releaseAt = now.UnixMicro(), now.UnixMicro()-1
	if err := b.scheduler(t).handAll(t.Context(), []*dueMessage{one, other}); err == nil {
		t.Error("handAll() = nil for two write times")
	}
	if n := b.count(t, "outbox_messages"); n != 0 {
		t.Errorf("%d rows were written", n)
	}
}

// The messages of one partition are released by one transaction. Half of them were
// cancelled after their slots were read: a second one releases the others, and the
// cancelled ones are never in the outbox.
func TestScheduler_ReleasesByOneTransaction(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ cancelled, transactions int }{"all": {0, 1}, "half": {releaseMost / 2, 2}, "none": {releaseMost, 1}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			now := time.Now()
			var ms []*Message
			var slots []slot
			for range releaseMost {
				m := message(now.Add(-time.Second))
				m.ID[15] &^= shards - 1
				ms, slots = append(ms, m), append(slots, m.slot())
			}
			b.put(t, now.Add(-time.Minute), ms...)
			for i, m := range ms[:c.cancelled] { // of some the row has no mark yet, of some no slot is left
				var err error
				if i%2 == 0 {
					_, err = b.change(t.Context(), cancelSlot, slices.Concat([]any{now.UnixMilli()}, m.slot().key(), []any{m.Topic})...)
				} else {
					err = b.Cancel(t.Context(), m, now)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			var transactions atomic.Int32
			b.Node.Faults().MustAdd(faults.Rule{
				Match:  faults.Match{Kinds: []engine.OpKind{engine.OpCAS}, Func: func(engine.Op) bool { transactions.Add(1); return false }},
				Effect: faults.Effect{Delay: time.Nanosecond},
			})
			b.scheduler(t).release(t.Context(), slots, func(x slot, err error) {
				if err != nil {
					t.Errorf("release of %s = %v", x.id, err)
				}
			})
			if n := int(transactions.Load()); n != c.transactions {
				t.Errorf("%d transactions, want %d", n, c.transactions)
			}
			events := b.readOutbox(t)
			for i, m := range ms {
				if _, out := events[m.ID]; out == (i < c.cancelled) {
					t.Errorf("message %d, cancelled %t, is in the outbox %t", i, i < c.cancelled, out)
				}
			}
			if n := b.count(t, "schedule_slots"); n != 0 {
				t.Errorf("%d slots are left", n)
			}
			for _, m := range ms[:c.cancelled] { // also for the next retry of its writer
				b.put(t, now.Add(-time.Minute), m)
				if got, err := b.Read(t.Context(), m.ID); err != nil || got.State != Cancelled {
					t.Errorf("Read() = %+v, %v, want it cancelled", got, err)
				}
			}
		})
	}
}

// A batch ends before its payloads exceed the limit; one that does alone has its own.
func TestBatches(t *testing.T) {
	t.Parallel()
	const half = releaseBytes / 2
	for name, c := range map[string]struct{ sizes, want []int }{
		"none": {}, "small": {[]int{1, 0, 1}, []int{3}}, "full": {[]int{half, half, 1}, []int{2, 1}},
		"one over the limit": {[]int{1, 3 * releaseBytes, 1, 1}, []int{1, 1, 2}}, "first over the limit": {[]int{3 * releaseBytes, 0, 1}, []int{1, 2}},
	} {
		var ds []*dueMessage
		for _, n := range c.sizes {
			ds = append(ds, &dueMessage{Message: Message{Payload: make([]byte, n)}})
		}
		var got []int
		for _, batch := range batches(ds) {
			got = append(got, len(batch))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: batches of %v messages, want %v", name, got, c.want)
		}
	}
}
