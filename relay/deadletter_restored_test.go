package relay

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// A dead letter that comes back from the archive, or that an operator reopens, is replayed once by a relay that runs,
// whether that saw it leave or began when it was gone; and so is one that is
// restored when the relay is away.
func TestDeadLetters_ARestoredOneIsReplayed(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	for i := range 6 {
		how, reopened := []string{"saw it leave", "began without it", "was away"}[i/2], i%2 == 1
		t.Run(fmt.Sprintf("%s, reopened %v", how, reopened), func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.Kafka = append(c.Kafka, relaytest.NoCompression()) })
				defer w.close()
				by := dlq.Actor{Name: "ada", Reason: "test"}
				must := func(err error) {
					t.Helper()
					if err != nil {
						t.Fatal(err)
					}
				}
				all := relaytest.Events(2, 3, "OrderUpdated")
				bad := all[2] // aggregate 0, number 2
				end := w.refuse(bad.ID.UUID(), kerr.InvalidRecord)
				r, stop := w.run()
				for _, e := range all {
					w.write(e)
				}
				time.Sleep(10 * time.Second)
				copied, err := w.deadLetters().Copy(t.Context(), bad.ID.UUID())
				must(err)
				if reopened {
					must(w.deadLetters().Discard(t.Context(), bad.ID.UUID(), by))
				} else {
					must(w.deadLetters().Purge(t.Context(), bad.ID.UUID(), dlq.Purge{Force: true}, by))
				}
				end()
				time.Sleep(10 * time.Second)
				relaytest.CheckOrder(t, w.consume("OrderUpdated"), without(all, bad.ID.UUID()))
				if how != "saw it leave" {
					must(stop())
				}
				if how == "began without it" {
					r, stop = w.run()
					time.Sleep(10 * time.Second)
				}
				if reopened {
					must(w.deadLetters().Reopen(t.Context(), bad.ID.UUID(), by))
				} else {
					must(w.deadLetters().Restore(t.Context(), bad.ID.UUID(), &copied, by))
				}
				if how == "was away" {
					r, stop = w.run()
				}
				time.Sleep(10 * time.Second)
				if n := r.Status().DeadLetters; n != 1 {
					t.Errorf("the relay knows %d dead letters, want the restored one", n)
				}
				must(w.deadLetters().Replay(t.Context(), bad.ID.UUID(), by))
				stale := w.open()[bad.ID.UUID()]
				time.Sleep(10 * time.Second)
				// A replay of the entry that was read before this relay settled the dead letter.
				publish.NewReplayer(r.publisher.Load(), nil).Answer(&dlq.Request{EventID: bad.ID.UUID(), Action: dlq.ActionReplay, Actor: "ada", Entry: stale})
				time.Sleep(10 * time.Minute) // the sweep shows every row again
				if n := r.Status().DeadLetters; n != 0 {
					t.Errorf("the relay knows %d dead letters, want none", n)
				}
				must(stop())
				n := 0
				got := w.consume("OrderUpdated")
				for _, d := range got {
					if d.ID == bad.ID {
						n++
					}
				}
				if n != 1 || len(got) != len(all) {
					t.Errorf("it was published %d times, and %d events in all, want once and %d", n, len(got), len(all))
				}
				l, err := w.deadLetters().Read(t.Context(), bad.ID.UUID())
				if err != nil || l.Status != dlq.Resolved || l.Outcome.Kind != dlq.OutcomeReplayed {
					t.Errorf("the letter is %s, outcome %+v, %v", l.Status, l.Outcome, err)
				}
			})
		})
	}
}

// An archived dead letter of which this relay knows nothing until it stores the same event's
// dead letter again is published once it is restored.
func TestDeadLetters_AnArchivedOneIsNotInItsTopic(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
			c.DedupMemory = 8 * dedup.BytesPerEvent // the start remembers one settled dead letter, the newest
			c.Kafka = append(c.Kafka, relaytest.NoCompression())
		})
		defer w.close()
		by := dlq.Actor{Name: "ada", Reason: "test"}
		all := relaytest.Events(2, 1, "OrderUpdated")
		bad, other := all[0], all[1]
		var copied dlq.Copy
		for _, e := range []outbox.Event{bad, other} {
			if _, err := w.deadLetters().Write(t.Context(), &dlq.DeadLetter{
				Table: "outbox.outbox_messages", EventID: e.ID.UUID(), AggregateID: e.AggregateID.String(), AggregateType: e.AggregateType, EventType: e.Type,
				Sequence: e.Sequence, Payload: e.Payload, ContentType: e.ContentType, Status: dlq.Suspended, ErrorClass: chains.ClassRefused,
			}); err != nil {
				t.Fatal(err)
			}
			c, err := w.deadLetters().Copy(t.Context(), e.ID.UUID())
			if err != nil {
				t.Fatal(err)
			}
			if e.ID == bad.ID {
				copied = c
			}
			if err := w.deadLetters().Purge(t.Context(), e.ID.UUID(), dlq.Purge{Force: true}, by); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		_, stop := w.run() // it answers the requests
		time.Sleep(10 * time.Second)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Minute)
		end := w.refuse(bad.ID.UUID(), kerr.InvalidRecord)
		_, stop = w.run()
		bad.CreatedAt = time.Now() // otherwise the relay searches for a dead letter first
		w.write(bad)
		time.Sleep(10 * time.Second)
		end()
		if err := w.deadLetters().Restore(t.Context(), bad.ID.UUID(), &copied, by); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if err := w.deadLetters().Replay(t.Context(), bad.ID.UUID(), by); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		l, err := w.deadLetters().Read(t.Context(), bad.ID.UUID())
		if err != nil || l.Status != dlq.Resolved || l.Outcome.Kind != dlq.OutcomeReplayed {
			t.Errorf("the letter is %s, outcome %+v, %v, want it replayed", l.Status, l.Outcome, err)
		}
		if got := w.consume("OrderUpdated"); len(got) != 1 {
			t.Errorf("%d events are published, want the restored one", len(got))
		}
	})
}

// The database is restored to a backup in which a dead letter is open that was replayed since. The relay
// runs until no start reads that record back, and starts again: the dead letter is found in its topic, one that was
// not replayed is published, and so is one that fails again after the search.
func TestDeadLetters_RestoredAfterTheirReplay(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.Kafka = append(c.Kafka, relaytest.NoCompression()) })
		defer w.close()
		by := dlq.Actor{Name: "ada", Reason: "test"}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		all := relaytest.Events(2, 2, "OrderUpdated")
		replayed, waiting := all[0], all[1] // the first events of two aggregates
		end := w.refuse(waiting.ID.UUID(), kerr.InvalidRecord)
		failed := time.Now()
		_, stop := w.run()
		for _, e := range all {
			w.write(e)
		}
		time.Sleep(10 * time.Minute) // the next start does not read these records back
		must(stop())
		if _, err := w.deadLetters().Write(t.Context(), &dlq.DeadLetter{
			Table: "outbox.outbox_messages", EventID: replayed.ID.UUID(), AggregateID: replayed.AggregateID.String(), AggregateType: replayed.AggregateType, EventType: replayed.Type,
			Sequence: replayed.Sequence, Payload: replayed.Payload, ContentType: replayed.ContentType, Status: dlq.Suspended, ErrorClass: chains.ClassRefused, FirstFailedAt: failed,
		}); err != nil {
			t.Fatal(err)
		}
		w.beginEpoch()
		_, stop = w.run()
		time.Sleep(10 * time.Second)
		must(w.deadLetters().Replay(t.Context(), replayed.ID.UUID(), by))
		must(w.deadLetters().Replay(t.Context(), waiting.ID.UUID(), by))
		time.Sleep(time.Minute) // the second one fails again
		end()
		must(w.deadLetters().Replay(t.Context(), waiting.ID.UUID(), by))
		time.Sleep(time.Minute)
		must(stop())
		n := make(map[outbox.ID]int)
		for _, d := range w.consume("OrderUpdated") {
			n[d.ID]++
		}
		for _, e := range all {
			if n[e.ID] != 1 {
				t.Errorf("event %d of aggregate %s is published %d times, want once", e.Sequence, e.AggregateID, n[e.ID])
			}
		}
		for e, want := range map[outbox.ID]dlq.OutcomeKind{replayed.ID: dlq.OutcomeFound, waiting.ID: dlq.OutcomeReplayed} {
			if l, err := w.deadLetters().Read(t.Context(), e.UUID()); err != nil || l.Status != dlq.Resolved || l.Outcome.Kind != want {
				t.Errorf("dead letter %s is %s, outcome %+v, %v; want %s", e, l.Status, l.Outcome, err, want)
			}
		}
	})
}
