package relay

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/epochs"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// beginEpoch begins an epoch of the outbox table now, between two seconds without writes.
func (w *world) beginEpoch() int64 {
	w.t.Helper()
	time.Sleep(2 * time.Second)
	epoch, table := time.Now().Unix(), "outbox.outbox_messages"
	before, err := epochs.Read(w.t.Context(), w.session, "outbox", table)
	if err == nil {
		err = epochs.Begin(w.t.Context(), w.session, "outbox", table, before.Current(), epoch, "ada", "restored")
	}
	if err != nil {
		w.t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	return epoch
}

// inEpochs fails the test for each event that is not published once, in the given epoch, and returns
// the published numbers of an aggregate from one epoch on.
func (w *world) inEpochs(want map[outbox.ID]int64, topic string) {
	w.t.Helper()
	n := make(map[outbox.ID]int)
	for _, d := range w.consume(topic) {
		n[d.ID]++
		if epoch, ok := want[d.ID]; !ok || d.Epoch != epoch {
			w.t.Errorf("event %d of aggregate %s is of epoch %d, want %d", d.Sequence, d.AggregateID, d.Epoch, epoch)
		}
	}
	for id := range want {
		if n[id] != 1 {
			w.t.Errorf("event %s is published %d times", id, n[id])
		}
	}
}

// The database is restored while the relay is away, and an epoch begins. The epoch of an event is
// that of the first write of its row: also if the event was created long before, is replayed as a
// dead letter later, is written again after it was published, or was not published before the
// restore. The numbers that are given again are published in their order, and are no conflict.
func TestEpochs_OfEvents(t *testing.T) {
	t.Parallel()
	for _, tail := range []string{TailOn, TailOff} {
		t.Run("tail="+tail, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
					c.ConfidenceWindow, c.Tail = 20*time.Second, tail
					c.Kafka = append(c.Kafka, relaytest.NoCompression())
				})
				defer w.close()
				const topic = "OrderUpdated"
				want := make(map[outbox.ID]int64)
				write := func(e outbox.Event, epoch int64) {
					want[e.ID] = epoch
					w.write(e)
					time.Sleep(time.Second)
				}
				bad := relaytest.Event(1, 1, topic)
				end := w.refuse(bad.ID.UUID(), kerr.InvalidRecord)
				_, stop := w.run()
				kept := relaytest.Event(0, 3, topic)
				for seq := int64(1); seq <= 5; seq++ {
					write(relaytest.Event(0, seq, topic), 0)
				}
				write(bad, 0)
				time.Sleep(30 * time.Second) // the next start reads these records back
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				w.exec("DELETE FROM outbox_messages WHERE aggregate_id = ? AND seq > 3", kept.AggregateID)
				write(relaytest.Event(2, 1, topic), 0)
				first := w.beginEpoch()
				w.write(kept) // a service finds the last change of the aggregate unfinished
				for seq := int64(4); seq <= 6; seq++ {
					e := again(0, seq, topic)
					e.CreatedAt = e.CreatedAt.Add(-24 * time.Hour)
					write(e, first)
				}
				r, stop := w.run()
				write(relaytest.Event(2, 2, topic), first)
				write(again(0, 7, topic), first)
				end()
				if err := w.deadLetters().Replay(t.Context(), bad.ID.UUID(), dlq.Actor{Name: "ada", Reason: "test"}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Minute)
				conflicts, problems := relaytest.Count(r.metrics.SequenceConflicts), r.Status().Problems
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				r, stop = w.run()
				write(again(0, 8, topic), first)
				write(relaytest.Event(1, 2, topic), first)
				time.Sleep(10 * time.Minute)
				conflicts += relaytest.Count(r.metrics.SequenceConflicts)
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				w.inEpochs(want, topic)
				if conflicts != 0 || len(problems) > 0 {
					t.Errorf("%v conflicts, problems %q", conflicts, problems)
				}
				last := int64(0)
				for _, d := range w.consume(topic) {
					if d.AggregateID == kept.AggregateID && d.Epoch == first {
						if d.Sequence != max(last, 3)+1 {
							t.Errorf("number %d of the epoch is published after %d", d.Sequence, last)
						}
						last = d.Sequence
					}
				}
			})
		})
	}
}

// A scan of the table publishes each row in the epoch of its write.
func TestEpochs_OfScannedRows(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		const topic = "OrderCreated"
		want := make(map[outbox.ID]int64)
		_, stop := w.run()
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		for a := range 3 {
			e := relaytest.Event(a, 1, topic)
			want[e.ID] = 0
			w.write(e)
		}
		first := w.beginEpoch()
		for a := range 3 {
			e := relaytest.Event(a, 2, topic)
			want[e.ID] = first
			w.write(e)
		}
		second := w.beginEpoch()
		for a := range 3 {
			e := relaytest.Event(a, 3, topic)
			want[e.ID] = second
			w.write(e)
		}
		time.Sleep(time.Minute)
		w.skipLog()
		scanAll(0)(&w.cfg)
		r, stop := w.run()
		time.Sleep(time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		w.inEpochs(want, topic)
		if n := relaytest.Count(r.metrics.Found[publish.ByBackfill]); n != 9 {
			t.Errorf("the scan published %v events, want 9", n)
		}
	})
}

// An epoch begins while the relay runs: the relay reads it by itself, and repeats nothing.
func TestEpochs_BeginsWhileTheRelayRuns(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.ConfidenceWindow = 20 * time.Second })
		defer w.close()
		const topic = "OrderCreated"
		want := make(map[outbox.ID]int64)
		log := w.logToBuffer()
		_, stop := w.run()
		time.Sleep(time.Minute)
		for a := range 20 {
			e := relaytest.Event(a, 1, topic)
			want[e.ID] = 0
			w.write(e)
		}
		time.Sleep(10 * time.Second)
		epoch := w.beginEpoch()
		time.Sleep(30 * time.Second)
		for a := range 20 {
			e := relaytest.Event(a, 2, topic)
			want[e.ID] = epoch
			w.write(e)
		}
		time.Sleep(5 * time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		w.inEpochs(want, topic)
		if !strings.Contains(log.String(), errEpoch.Error()) {
			t.Error("the relay does not report the epoch")
		}
	})
}
