package engine

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/deadletter"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/position"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/queue"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

// The topics are restored from a copy, which ends before messages that the database knows by their
// offsets. Another record gets such an offset, before or after an owner starts, and is delivered.
func TestRestore_TopicsEndBeforeWhatTheDatabaseKnows(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]func(w *world, id store.Partition, of position.Origin, rec *kgo.Record){
		"a stored message": func(w *world, id store.Partition, _ position.Origin, rec *kgo.Record) {
			later := time.Now().Add(time.Hour)
			w.db.rows[id] = map[int64]store.Stored{rec.Offset: {Offset: rec.Offset, Key: string(rec.Key), State: store.StateDeferred, Attempts: 1, NextAt: later, FirstAt: rec.Timestamp, Record: rec}}
		},
		"a dead letter": func(w *world, id store.Partition, of position.Origin, rec *kgo.Record) {
			l := deadletter.New(&deadletter.Message{Table: "subscription.s", Incarnation: id.Subscription, Record: rec, Origin: of, Attempts: 1, FirstAt: rec.Timestamp, At: time.Now(), Class: ClassRejected})
			w.db.deadLetters[l.EventID] = *l
		},
		"a lease": func(w *world, id store.Partition, of position.Origin, rec *kgo.Record) {
			lease := queue.HandedLease{Offset: rec.Offset, Key: rec.Key, Lease: 1, Attempts: 1, Written: rec.Timestamp, Since: rec.Timestamp, Remaining: time.Hour}
			data, err := json.Marshal(handOver{of.TopicID, of.Generation, []leaseEpoch{{1, 1}}, queue.HandOver{Last: 1, Leases: []queue.HandedLease{lease}}})
			if err != nil {
				w.t.Fatal(err)
			}
			w.db.handOvers[id] = data
		},
	} {
		for when, before := range map[string]bool{"before the start": true, "after the start": false} {
			t.Run(name+" "+when, func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(w *world) {
					w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Ordering: subscriptions.OrderingStrict})
					p := w.start()
					w.produce("a", "k", "e0")
					m := p.one("e0", 1)
					p.ok(subscriptions.ActionAck, m)
					w.sleep(time.Second)
					p.stop()
					of := w.origin("a", m.Partition)
					r, err := w.db.Get(context.Background(), "s")
					if err != nil {
						t.Fatal(err)
					}
					old := event("a", "k", "old1")
					old.Partition, old.Offset, old.Timestamp = m.Partition, 1, time.Now()
					known(w, store.Partition{Subscription: r.Incarnation(), Topic: "a", Number: m.Partition}, of, old)
					w.sleep(time.Minute)
					if before {
						w.produce("a", keyBeside("k"), "new1")
					}
					p = w.start()
					if !before {
						w.produce("a", keyBeside("k"), "new1")
					}
					p.ok(subscriptions.ActionAck, p.one("new1", 1))
					w.sleep(2 * time.Minute)
					if name == "a stored message" {
						if l := w.letter(dlq.Suspended); l.Headers["name"] != "old1" || l.ErrorClass != ClassRecordGone {
							t.Errorf("the dead letter is %s of %v", l.ErrorClass, l.Headers)
						}
					}
				})
			})
		}
	}
}

// A restore of the database undoes seeks that the positions have applied. The next seek is applied.
func TestRestore_SeekAfterTheDatabaseIsRestored(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}})
		p := w.start()
		w.produce("a", "k", "e0")
		p.ok(subscriptions.ActionAck, p.one("e0", 1))
		backup, err := w.db.Get(context.Background(), "s")
		if err != nil {
			t.Fatal(err)
		}
		seek := func() {
			t.Helper()
			if err := p.Seek(context.Background(), "s", subscriptions.Seek{To: subscriptions.StartEarliest, Partition: -1}, "ada"); err != nil {
				t.Fatal(err)
			}
			w.sleep(10 * time.Second)
			p.ok(subscriptions.ActionAck, p.one("e0", 1))
		}
		seek()
		seek()
		w.sleep(time.Second)
		p.stop()
		w.db.resources["s"] = backup
		p = w.start()
		seek()
	})
}

// origin returns the origin of the committed position of a partition.
func (w *world) origin(topic string, number int32) position.Origin {
	w.t.Helper()
	r, err := w.db.Get(context.Background(), "s")
	if err != nil {
		w.t.Fatal(err)
	}
	all, err := w.adm.FetchOffsets(context.Background(), r.Incarnation())
	if err != nil {
		w.t.Fatal(err)
	}
	o, _ := all.Lookup(topic, number)
	_, of, err := position.Decode(o.At, o.Metadata)
	if err != nil {
		w.t.Fatal(err)
	}
	return of
}
