package engine

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	testworld "github.com/scylla-outbox/scylla-outbox/test/world"
)

// recreate deletes a topic and creates it again.
func (w *world) recreate(topic string) { w.recreateWith(topic, testPartitions) }

func (w *world) recreateWith(topic string, partitions int32) {
	w.t.Helper()
	if _, err := w.adm.DeleteTopics(context.Background(), topic); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.adm.CreateTopic(context.Background(), partitions, 1, nil, topic); err != nil {
		w.t.Fatal(err)
	}
	w.producer.PurgeTopicsFromProducing(topic)
}

// A rejected message of a recreated topic becomes a dead letter of its own.
func TestIdentity_RejectedMessageOfARecreatedTopic(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}})
		p := w.start()
		w.produce("a", "k", "old0")
		p.ok(subscriptions.ActionReject, p.one("old0", 1))
		w.sleep(time.Second)
		w.letter(dlq.Suspended)
		w.recreate("a")
		w.produce("a", "k", "new0")
		w.sleep(2 * time.Minute)
		p.ok(subscriptions.ActionReject, p.one("new0", 1)) // confirmed: "dead letter now"
		w.sleep(10 * time.Second)
		if all := w.db.letters(); len(all) != 2 {
			t.Errorf("%d dead letters, want 2; the only one is of %s", len(all), all[0].Headers["name"])
		}
		if got := p.receive(10, 20*time.Second); len(got) != 0 {
			t.Errorf("delivered again: %v", names(got))
		}
	})
}

// So does one whose last allowed delivery fails.
func TestIdentity_LastDeliveryAfterARecreatedTopic(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, MaxReceive: 1})
		p := w.start()
		w.produce("a", "k", "old0")
		p.ok(subscriptions.ActionNack, p.one("old0", 1))
		w.sleep(time.Second)
		id := w.letter(dlq.Suspended).EventID
		// an operator replays it, and the consumer acknowledges: everything is clean
		w.replay(id)
		p.ok(subscriptions.ActionAck, p.one("old0", 1))
		w.sleep(5 * time.Second)
		w.letter(dlq.Resolved)
		w.recreate("a")
		w.produce("a", "k", "new0")
		w.sleep(2 * time.Minute)
		p.one("new0", 1) // the consumer crashes
		w.sleep(5 * time.Minute)
		all := w.db.letters()
		if len(all) != 2 {
			t.Errorf("%d dead letters, want 2; the only one is %s of %s", len(all), all[0].Status, all[0].Headers["name"])
		}
	})
}

// A replay of a dead letter of the former topic settles no record of the new one.
func TestIdentity_ReplayOfAFormerTopicSettlesNoRecord(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Ordering: subscriptions.OrderingNone})
		p := w.start()
		for i := range 6 {
			w.produce("a", "k", "old"+strconv.Itoa(i))
		}
		w.sleep(time.Second)
		got := p.all()
		for _, m := range got {
			if m.Offset == 5 {
				p.ok(subscriptions.ActionReject, m)
			} else {
				p.ok(subscriptions.ActionAck, m)
			}
		}
		w.sleep(time.Second)
		id := w.letter(dlq.Suspended).EventID
		w.recreate("a")
		w.produce("a", "k", "new0")
		w.sleep(2 * time.Minute)
		p.ok(subscriptions.ActionAck, p.one("new0", 1))
		w.replay(id)
		w.sleep(5 * time.Second)
		p.ok(subscriptions.ActionAck, p.one("old5", 1))
		w.sleep(5 * time.Second)
		w.letter(dlq.Resolved)
		for i := 1; i < 8; i++ {
			w.produce("a", "k", "new"+strconv.Itoa(i))
		}
		w.sleep(10 * time.Second)
		got = p.all()
		if len(got) != 7 {
			t.Errorf("%d of the new topic delivered, want 7: %v", len(got), names(got))
		}
	})
}

// With strict order, a record of the recreated topic at the place of an open dead letter waits
// for the end of its key, and is delivered.
func TestIdentity_StrictDeadLetterOfAFormerTopicSettlesNoRecord(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Ordering: subscriptions.OrderingStrict})
		p := w.start()
		w.produce("a", "k", "old0")
		p.ok(subscriptions.ActionReject, p.one("old0", 1))
		w.sleep(time.Second)
		w.letter(dlq.Suspended)
		w.recreate("a")
		w.sleep(time.Minute)
		w.produce("a", "k", "new0")
		w.produce("a", "k", "new1")
		w.sleep(2 * time.Minute)
		if got := p.all(); len(got) != 0 {
			t.Errorf("%v passes the open dead letter", names(got))
		}
		w.db.mu.Lock()
		for id, l := range w.db.deadLetters {
			l.Status = dlq.Resolved
			w.db.deadLetters[id] = l
		}
		w.db.mu.Unlock()
		w.sleep(time.Minute)
		var seen []string
		for range 3 {
			got := p.receive(10, 20*time.Second)
			seen = append(seen, names(got)...)
			p.ok(subscriptions.ActionAck, got...)
		}
		if len(seen) != 2 {
			t.Errorf("delivered %v, want new0 and new1", seen)
		}
	})
}

// After kafka-consumer-groups --reset-offsets the same message may fail again, although its
// first dead letter is resolved.
func TestIdentity_RejectedAgainAfterKafkaToolsResetTheOffset(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}})
		p := w.start()
		w.produce("a", "k", "e0")
		m := p.one("e0", 1)
		p.ok(subscriptions.ActionReject, m)
		w.sleep(time.Second)
		id := w.letter(dlq.Suspended).EventID
		w.db.mu.Lock()
		l := w.db.deadLetters[id]
		l.Status = dlq.Resolved // discarded by an operator
		w.db.deadLetters[id] = l
		w.db.mu.Unlock()
		p.stop()
		group, err := w.db.Get(context.Background(), "s")
		if err != nil {
			t.Fatal(err)
		}
		var off kadm.Offsets
		off.Add(kadm.Offset{Topic: "a", Partition: m.Partition, At: 0, LeaderEpoch: -1})
		if _, err := w.adm.CommitOffsets(context.Background(), group.Incarnation(), off); err != nil {
			t.Fatal(err)
		}
		p = w.start()
		p.ok(subscriptions.ActionReject, p.one("e0", 1))
		w.sleep(10 * time.Second)
		open := 0
		for _, l := range w.db.letters() {
			if l.Status != dlq.Resolved {
				open++
			}
		}
		if open != 1 {
			t.Errorf("%d open dead letters after the second rejection, want 1; delivered again: %v", open, names(p.receive(10, 20*time.Second)))
		}
	})
}

// After the committed offsets have expired (no process ran for offsets.retention.minutes)
// everything is delivered again, and a message that fails again gets a dead letter.
func TestIdentity_RejectedAgainAfterTheOffsetsExpired(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}})
		p := w.start()
		w.produce("a", "k", "e0")
		p.ok(subscriptions.ActionReject, p.one("e0", 1))
		w.sleep(time.Second)
		id := w.letter(dlq.Suspended).EventID
		w.replay(id) // an operator replays it, and it is processed
		p.ok(subscriptions.ActionAck, p.one("e0", 1))
		w.sleep(5 * time.Second)
		w.letter(dlq.Resolved)
		p.stop()
		group, err := w.db.Get(context.Background(), "s")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.adm.DeleteGroup(context.Background(), group.Incarnation()); err != nil {
			t.Fatal(err)
		}
		p = w.start()
		p.ok(subscriptions.ActionReject, p.one("e0", 1))
		w.sleep(10 * time.Second)
		open := 0
		for _, l := range w.db.letters() {
			if l.Status != dlq.Resolved {
				open++
			}
		}
		if open != 1 {
			t.Errorf("%d open dead letters after the rejection, want 1; delivered again: %v", open, names(p.receive(10, 20*time.Second)))
		}
	})
}

// resolve resolves all dead letters, as an operator does.
func (m *memory) resolve() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, l := range m.deadLetters {
		l.Status = dlq.Resolved
		m.deadLetters[id] = l
	}
}

// A seek lets a message fail again, also after a restart in between.
func TestIdentity_RejectedAgainAfterASeek(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}})
		p := w.start()
		w.produce("a", "k", "e0")
		for n := range 3 {
			p.ok(subscriptions.ActionReject, p.one("e0", 1))
			w.sleep(time.Second)
			if all := w.db.letters(); len(all) != n+1 {
				t.Fatalf("%d dead letters after %d rejections", len(all), n+1)
			}
			w.db.resolve()
			if err := p.Seek(context.Background(), "s", subscriptions.Seek{To: subscriptions.StartEarliest, Partition: -1}, "ada"); err != nil {
				t.Fatal(err)
			}
			p.stop()
			p = w.start()
		}
	})
}

// The position of a deleted topic that a coordinator stores for the new one, by its name, is
// ignored: so do all versions of Redpanda, and Apache Kafka before 4.2.
func TestIdentity_PositionOfAFormerTopicIsIgnored(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]bool{"while the owner runs": false, "while no instance runs": true} {
		for _, ordering := range []subscriptions.Ordering{subscriptions.OrderingKey, subscriptions.OrderingStrict, subscriptions.OrderingNone} {
			t.Run(name+"/"+string(ordering), func(t *testing.T) {
				t.Parallel()
				eachBroker(t, func(w *world, v *testworld.BrokerVersion) {
					w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Ordering: ordering, Backoff: time.Hour, MaxBackoff: time.Hour})
					p := w.start()
					w.many("a", 0, 10, 10)
					w.sleep(time.Second)
					got := p.all()
					if !restart {
						w.recreate("a")
					}
					if v.CommitIDs && !restart {
						p.settle(subscriptions.ActionAck, got...) // the position of a deleted topic is refused
					} else {
						p.ok(subscriptions.ActionAck, got...) // by name: the coordinator stores the old position for the new topic
					}
					if restart {
						p.stop()
						w.recreate("a")
					}
					w.many("a", 100, 30, 10) // more than before
					if restart {
						p = w.start()
					}
					w.sleep(5 * time.Minute)
					var again []subscriptions.Message
					for more := p.all(); len(more) > 0; more = p.all() {
						again = append(again, more...)
						p.ok(subscriptions.ActionAck, more...)
						w.sleep(time.Second)
					}
					if len(got) != 10 || len(again) != 30 {
						w.t.Errorf("%d messages of the former topic and %d of the new one, want 10 and 30", len(got), len(again))
					}
				})
			})
		}
	}
}

// Messages that are stored when their topic is recreated become dead letters of the former
// topic; an operator may replay them, and they are delivered beside the new records.
func TestIdentity_StoredMessagesOfAFormerTopic(t *testing.T) {
	t.Parallel()
	for name, restart := range map[string]bool{"while the owner runs": false, "while no instance runs": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Backoff: time.Hour, MaxBackoff: time.Hour})
				p := w.start()
				w.produce("a", "k", "old0")
				p.ok(subscriptions.ActionNack, p.one("old0", 1))
				w.sleep(time.Second)
				if restart {
					p.stop()
				}
				w.recreate("a")
				w.produce("a", "k", "new0")
				if restart {
					p = w.start()
				}
				w.sleep(2 * time.Minute)
				l := w.letter(dlq.Suspended)
				if l.ErrorClass != ClassRecordGone || l.Headers["name"] != "old0" {
					t.Errorf("the dead letter is %s of %v", l.ErrorClass, l.Headers)
				}
				p.ok(subscriptions.ActionAck, p.one("new0", 1))
				w.replay(l.EventID)
				w.sleep(5 * time.Second)
				w.produce("a", "k", "new1")
				p.ok(subscriptions.ActionAck, p.one("old0", 1))
				p.ok(subscriptions.ActionAck, p.one("new1", 1))
				w.sleep(5 * time.Second)
				w.letter(dlq.Resolved)
			})
		})
	}
}

// A topic that is recreated with fewer partitions: a replay for one that is gone is suspended with
// the reason, and does not hide the other requests.
func TestIdentity_ReplayOfAPartitionThatIsGone(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}})
		p := w.start()
		w.many("a", 0, 40, 40)
		w.sleep(time.Second)
		p.ok(subscriptions.ActionReject, p.all()...)
		w.sleep(5 * time.Second)
		w.recreateWith("a", 1)
		w.sleep(2 * time.Minute)
		gone := 0
		for _, l := range w.db.letters() {
			w.replay(l.EventID)
			if l.Metadata["partition"] != "0" {
				gone++
			}
		}
		w.sleep(5 * time.Second)
		p.ok(subscriptions.ActionAck, p.all()...)
		w.sleep(2 * time.Minute)
		count := map[dlq.Status]int{}
		for _, l := range w.db.letters() {
			count[l.Status]++
			if l.Status == dlq.Suspended && l.ErrorClass != "replay" {
				t.Errorf("%s is suspended by %s", l.EventID, l.ErrorClass)
			}
		}
		if gone == 0 || count[dlq.Suspended] != gone || count[dlq.Resolved] != 40-gone || len(w.db.requests) != 0 {
			t.Errorf("%v with %d of partitions that are gone, %d requests left", count, gone, len(w.db.requests))
		}
	})
}

// A dead letter of a deleted subscription is not delivered to a later one of the name, past its
// filter and its start, and blocks none of its keys.
func TestIdentity_DeadLetterOfADeletedSubscription(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		s := subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Ordering: subscriptions.OrderingStrict}
		w.put(s)
		p := w.start()
		w.produce("a", "k", "old0")
		w.produce("a", "k2", "old1")
		w.sleep(time.Second)
		p.ok(subscriptions.ActionReject, p.all()...)
		w.sleep(time.Second)
		waits := w.db.letters()[0]
		w.replay(waits.EventID)
		w.sleep(3 * time.Second) // it is stored, and claimed by the first subscription
		if err := p.Delete(context.Background(), "s", 0, "ada"); err != nil {
			t.Fatal(err)
		}
		w.sleep(4 * time.Minute)
		for _, l := range w.db.letters() {
			if l.Status != dlq.Suspended {
				t.Fatalf("%s is %s after the subscription was deleted", l.Headers["name"], l.Status)
			}
			w.replay(l.EventID)
		}
		w.sleep(2 * time.Minute)
		for _, l := range w.db.letters() {
			if l.Status != dlq.Suspended || l.ErrorClass != "replay" {
				t.Errorf("%s is %s by %s, want suspended: nobody can deliver it", l.Headers["name"], l.Status, l.ErrorClass)
			}
			w.replay(l.EventID)
		}
		w.put(s)
		w.sleep(30 * time.Second)
		w.produce("a", "k", "new0")
		p.ok(subscriptions.ActionAck, p.one("new0", 1))
		if got := p.receive(10, 20*time.Second); len(got) != 0 || len(w.db.requests) != 0 {
			t.Errorf("the new subscription receives %v; %d requests left", names(got), len(w.db.requests))
		}
	})
}

// A replay for a topic that the subscription reads no more is suspended with the reason, and 1,200
// of them do not hide the one that can be delivered.
func TestReplay_OfATopicThatIsNotRead(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		s := subscriptions.Subscription{Name: "s", Topics: []string{"a", "b"}}
		w.put(s)
		p := w.start()
		w.many("b", 0, 1200, 1200)
		w.sleep(time.Second)
		p.ok(subscriptions.ActionReject, p.all()...)
		w.sleep(10 * time.Second)
		left := w.db.letters()
		w.produce("a", "k", "e")
		p.ok(subscriptions.ActionReject, p.one("e", 1))
		w.sleep(time.Second)
		s.Topics = []string{"a"}
		w.put(s)
		w.sleep(20 * time.Second)
		for _, l := range left {
			w.replay(l.EventID)
		}
		for _, l := range w.db.letters() {
			if l.Topic == "a" {
				w.replay(l.EventID)
			}
		}
		w.sleep(10 * time.Second)
		p.ok(subscriptions.ActionAck, p.one("e", 1))
		w.sleep(3 * time.Minute)
		for _, l := range left {
			if l, err := w.db.Read(context.Background(), l.EventID); err != nil || l.Status != dlq.Suspended || l.ErrorClass != "replay" {
				t.Fatalf("%s is %s by %s, %v; want suspended with the reason", l.Headers["name"], l.Status, l.ErrorClass, err)
			}
		}
	})
}

// A broker without topic ids is refused with the reason: a recreated topic could not be
// distinguished from the former one.
func TestEngine_RefusesABrokerWithoutTopicIDs(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}})
		p := w.start()
		w.produce("a", "k", "e0")
		if got := p.receive(10, 20*time.Second); len(got) != 0 {
			t.Errorf("received %v, want nothing", names(got))
		}
		w.sleep(10 * time.Second)
		st, err := p.Status(context.Background(), "s")
		if err != nil || len(st.Instances) != 1 || !strings.Contains(st.Instances[0].LastError, "no topic ids") {
			t.Errorf("the status is %+v, %v; want the reason", st.Instances, err)
		}
	}, kfake.MaxVersions(kversion.V2_7_0()))
}

// After a day an operator may act on a dead letter whose replay still waits. The state is then
// that of the decision.
func TestReplay_RequestedAgainAfterTheClaim(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}})
		p := w.start()
		w.produce("a", "k", "e0")
		p.ok(subscriptions.ActionReject, p.one("e0", 1))
		w.sleep(time.Second)
		id := w.letter(dlq.Suspended).EventID
		if err := p.Pause(context.Background(), "s", "operator"); err != nil { // the receiver is down over the weekend
			t.Fatal(err)
		}
		w.sleep(3 * time.Second)
		w.replay(id)
		w.sleep(25 * time.Hour)
		l := w.letter(dlq.Processing)
		if time.Since(l.ClaimedUntil) < 0 {
			t.Fatal("the claim has not expired")
		}
		// the operator replays again: store.Replay permits it, because the claim has expired
		if _, err := w.db.update("replay", id, dlq.Processing, func(d *dlq.DeadLetter) {
			d.Status, d.NextAttempt, d.ClaimedBy, d.ClaimedUntil = dlq.Pending, time.Now(), "", time.Time{}
		}); err != nil {
			t.Fatal(err)
		}
		if err := w.db.do("request", func() error {
			w.db.requests = append(w.db.requests, dlq.Request{ID: gocql.TimeUUID(), EventID: id, Table: "subscription.s"})
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		w.sleep(10 * time.Second)
		if err := p.Resume(context.Background(), "s", "operator"); err != nil {
			t.Fatal(err)
		}
		w.sleep(3 * time.Second)
		p.ok(subscriptions.ActionAck, p.one("e0", 1))
		w.sleep(time.Hour)
		if all := w.db.letters(); all[0].Status != dlq.Resolved {
			t.Errorf("the dead letter is %s one hour after its acknowledgement; %d requests, %d rows", all[0].Status, len(w.db.requests), w.db.rowCount())
		}
	})
}
