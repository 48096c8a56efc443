package publish

import (
	"errors"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// A replay whose claim was lost publishes nothing: an operator may have discarded the
// dead letter, or another worker may replay it.
func TestReplay_EndsWithItsClaim(t *testing.T) {
	t.Parallel()
	const topic = "OrderUpdated"
	// The replay has begun and waits, or the process was paused before it began.
	for name, begun := range map[string]bool{"before it begins": false, "while it waits": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scyllatest.Bubble(t, func(t *testing.T) {
				db, err := scyllafake.Start(scyllafake.Config{Tokens: 4})
				if err != nil {
					t.Fatal(err)
				}
				relaytest.Migrate(t, db)
				session := relaytest.Connect(t, db, "outbox", false)
				store, err := dlq.Open(session, "outbox")
				if err != nil {
					t.Fatal(err)
				}
				w := setup(t, func(c *Config) { c.TableKeyspace, c.DeadLetters = "outbox", store })
				defer func() {
					session.Close()
					w.close()
					if err := db.Close(); err != nil {
						t.Error(err)
					}
					time.Sleep(time.Minute) // timers of the clients
				}()
				first := relaytest.Event(0, 1, topic)
				w.submit(first, nil) // creates the topic
				w.drain(time.Minute)
				p, e := w.publisher, relaytest.Event(1, 1, topic)
				if begun {
					e.DeliverAt = time.Now().Add(2 * w.cfg.ClaimFor)
				}
				if _, err := store.Write(t.Context(), &dlq.DeadLetter{
					Table: "outbox.outbox_messages", EventID: e.ID, AggregateID: e.AggregateString(), AggregateType: e.AggregateType, EventType: e.Type,
					Sequence: 1, Payload: e.Payload, ContentType: e.ContentType, DeliverAt: e.DeliverAt, NextAttempt: time.Now().Add(time.Hour),
				}); err != nil {
					t.Fatal(err)
				}
				open := chains.New(nil)
				open.Add(e.AggregateID, true, chains.Ref{ID: e.ID}, false)
				work := &replayWork{chain: open.Of(e.AggregateID), refs: []chains.Ref{{ID: e.ID}}}
				b := newBatch(NewReplayer(p, nil), []*replayWork{work})
				b.claimed(work, store.ClaimMany(t.Context(), []gocql.UUID{e.ID}, b.r.owner, w.cfg.ClaimFor))
				if begun {
					b.publish(t.Context(), work)
				}
				time.Sleep(w.cfg.ClaimFor + time.Second)
				if err := store.Discard(t.Context(), e.ID, dlq.Actor{Name: "ada", Reason: "test"}); err != nil {
					t.Fatal(err)
				}
				b.extend()
				if !begun {
					b.publish(t.Context(), work)
				}
				time.Sleep(2 * w.cfg.ClaimFor)
				select {
				case x := <-b.ended:
					if !errors.Is(x.end.err, errClaimLost) {
						t.Errorf("the replay ended with %v, want %v", x.end.err, errClaimLost)
					}
				default:
					t.Error("the replay did not end")
				}
				relaytest.CheckOrder(t, w.consume(topic), []outbox.Event{first})
			})
		})
	}
}
