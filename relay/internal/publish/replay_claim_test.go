package publish

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/scyllatest"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// stored is a fixture with a store of dead letters.
type stored struct {
	*fixture
	session *gocql.Session
	db      *scyllafake.Server
}

// withDeadLetters returns a fixture, in a bubble, whose publisher writes dead letters.
func withDeadLetters(t *testing.T) (*stored, *dlq.Store) {
	t.Helper()
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
	return &stored{setup(t, func(c *Config) { c.TableKeyspace, c.DeadLetters = "outbox", store }), session, db}, store
}

func (w *stored) close() {
	w.session.Close()
	w.fixture.close()
	if err := w.db.Close(); err != nil {
		w.t.Error(err)
	}
	time.Sleep(time.Minute) // timers of the clients
}

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
				w, store := withDeadLetters(t)
				defer w.close()
				const claim = outbox.MaxDelay / 3 // a replay waits for longer
				w.publisher.cfg.ClaimFor = claim
				first := relaytest.Event(0, 1, topic)
				w.submit(first, nil) // creates the topic
				w.drain(time.Minute)
				p, e := w.publisher, relaytest.Event(1, 1, topic)
				if begun {
					e.DeliverAt = time.Now().Add(2 * claim)
				}
				if _, err := store.Write(t.Context(), &dlq.DeadLetter{
					Table: "outbox.outbox_messages", EventID: e.ID.UUID(), AggregateID: e.AggregateID.String(), AggregateType: e.AggregateType, EventType: e.Type,
					Sequence: 1, Payload: e.Payload, ContentType: e.ContentType, DeliverAt: e.DeliverAt, NextAttempt: time.Now().Add(time.Hour),
				}); err != nil {
					t.Fatal(err)
				}
				open := chains.New(nil)
				open.Add(e.AggregateID, true, chains.Ref{ID: e.ID.UUID()}, false)
				work := &replayWork{chain: open.Of(e.AggregateID.UUID()), refs: []chains.Ref{{ID: e.ID.UUID()}}}
				b := newBatch(NewReplayer(p, nil), []*replayWork{work})
				b.claimed(work, store.ClaimMany(t.Context(), []gocql.UUID{e.ID.UUID()}, b.r.owner, claim))
				if begun {
					b.publish(t.Context(), work)
				}
				time.Sleep(claim + time.Second)
				if err := store.Discard(t.Context(), e.ID.UUID(), dlq.Actor{Name: "ada", Reason: "test"}); err != nil {
					t.Fatal(err)
				}
				b.extend()
				if !begun {
					b.publish(t.Context(), work)
				}
				time.Sleep(2 * claim)
				select {
				case x := <-b.ended:
					if !errors.Is(x.err, errClaimLost) {
						t.Errorf("the replay ended with %v, want %v", x.err, errClaimLost)
					}
				default:
					t.Error("the replay did not end")
				}
				relaytest.CheckOrder(t, w.consume(topic), []outbox.Event{first})
			})
		})
	}
}

// A publisher may be closed before its replayer is stopped, as when a drain takes too long: Close waits
// until the replayer has ended, and a replayer that begins later does nothing.
func TestReplayer_EndsBeforeThePublisherIsClosed(t *testing.T) {
	t.Parallel()
	scyllatest.Bubble(t, func(t *testing.T) {
		b, _ := withDeadLetters(t)
		defer b.close()
		r := NewReplayer(b.publisher, nil)
		ended := make(chan error, 1)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { ended <- r.Run(ctx) }()
		time.Sleep(time.Minute)
		b.publisher.Close()
		select {
		case err := <-ended:
			if !errors.Is(err, failure.ErrStopping) {
				t.Errorf("Run() error = %v, want %v", err, failure.ErrStopping)
			}
		default:
			t.Fatal("the replayer runs after the publisher was closed")
		}
		if err := r.Run(ctx); !errors.Is(err, failure.ErrStopping) {
			t.Errorf("Run() error = %v after Close, want %v", err, failure.ErrStopping)
		}
	})
}

// A dead letter may be due later than any event is, such as a restored one whose clock was ahead:
// its replay holds the lane and the claim no longer than an event may be due.
func TestReplay_LimitsTheDelay(t *testing.T) {
	t.Parallel()
	for _, due := range []time.Duration{-time.Hour, outbox.MaxDelay / 2, outbox.MaxDelay, time.Hour, 100 * 365 * 24 * time.Hour} {
		t.Run(due.String(), func(t *testing.T) {
			t.Parallel()
			scyllatest.Bubble(t, func(t *testing.T) {
				w, store := withDeadLetters(t)
				defer w.close()
				e := relaytest.Event(1, 1, "OrderUpdated")
				began := time.Now()
				e.DeliverAt = began.Add(due)
				if _, err := store.Write(t.Context(), &dlq.DeadLetter{
					Table: "outbox.outbox_messages", EventID: e.ID.UUID(), AggregateID: e.AggregateID.String(), AggregateType: e.AggregateType, EventType: e.Type,
					Sequence: 1, Payload: e.Payload, ContentType: e.ContentType, DeliverAt: e.DeliverAt, NextAttempt: time.Now().Add(time.Hour),
				}); err != nil {
					t.Fatal(err)
				}
				open := chains.New(nil)
				open.Add(e.AggregateID, true, chains.Ref{ID: e.ID.UUID()}, false)
				work := &replayWork{chain: open.Of(e.AggregateID.UUID()), refs: []chains.Ref{{ID: e.ID.UUID()}}}
				b := newBatch(NewReplayer(w.publisher, nil), []*replayWork{work})
				b.claimed(work, store.ClaimMany(t.Context(), []gocql.UUID{e.ID.UUID()}, b.r.owner, w.cfg.ClaimFor))
				b.publish(t.Context(), work)
				select {
				case x := <-b.ended:
					if x.err != nil {
						t.Errorf("the replay ended with %v", x.err)
					}
				case <-time.After(2 * outbox.MaxDelay):
					t.Fatal("the replay did not end")
				}
				least := min(max(due, 0), outbox.MaxDelay)
				if took := time.Since(began); took < least-time.Millisecond || took > least+2*time.Second {
					t.Errorf("the replay took %s, want %s", took, least)
				}
			})
		})
	}
}

// The head of a chain no longer exists when the events before it are looked up: they are
// looked up before the next one then.
func TestReplayer_AHeadThatIsGone(t *testing.T) {
	t.Parallel()
	scyllatest.Bubble(t, func(t *testing.T) {
		w, _ := withDeadLetters(t)
		defer w.close()
		p, e := w.publisher, relaytest.Event(1, 4, "OrderUpdated")
		r := NewReplayer(p, nil)
		var chain *chains.Chain
		var head headLookUp
		p.ask(func(c *cell) {
			for seq := int64(4); seq <= 5; seq++ {
				c.dead.Add(e.AggregateID, true, chains.Ref{ID: relaytest.Event(1, seq, e.Type).ID.UUID(), Seq: seq, After: 1}, false)
			}
			chain = c.dead.Of(e.AggregateID.UUID())
			head = c.beginLookUp(chain, c.now)
		})
		r.lookUp(t.Context(), head)
		p.ask(func(*cell) {
			if len(chain.DeadLetters) != 1 || chain.Head().Seq != 5 || chain.Head().After == 0 {
				t.Errorf("the chain has %+v, want 5, before which nothing was looked up", chain.DeadLetters)
			}
		})
	})
}
