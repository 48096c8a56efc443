package engine

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// message returns the record of a message: its key is that of the caller, and its aggregate
// is itself.
func message(topic, key, name string) *kgo.Record {
	r := event(topic, name, name)
	r.Key = []byte(key)
	return r
}

// The key of a message is that of its record, also if each message is an aggregate of its own.
func TestEngine_KeyOfTheRecord(t *testing.T) {
	t.Parallel()
	for _, ordering := range []subscriptions.Ordering{subscriptions.OrderingKey, subscriptions.OrderingStrict} {
		inBubble(t, func(w *world) {
			w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Ordering: ordering})
			p := w.start()
			for i := range 5 {
				w.publish(message("a", "customer-42", "m"+strconv.Itoa(i)))
			}
			noKey := event("a", "order-1", "e0")
			noKey.Key = nil
			w.publish(noKey)
			w.sleep(time.Second)
			var got []string
			for range 5 {
				some := p.all()
				slices.SortFunc(some, func(a, b subscriptions.Message) int { return len(a.Key) - len(b.Key) })
				if p.ok(subscriptions.ActionAck, some...); len(got) == 0 && nameOfMessage(&some[0]) == "e0" {
					some = some[1:]
				}
				got = append(got, names(some)...)
			}
			if !slices.Equal(got, []string{"m0", "m1", "m2", "m3", "m4"}) {
				t.Errorf("%s: received %v, want one message of the key at a time", ordering, got)
			}
		})
	}
}

// One key is one group over topics, the oldest message first, with several owners and with
// topics of different numbers of partitions.
func TestEngine_KeyIsOneGroupOverTopics(t *testing.T) {
	t.Parallel()
	for name, partitions := range map[string]int32{"the same number of partitions": testPartitions, "a multiple": 2 * testPartitions, "no common divisor": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				if _, err := w.adm.CreateTopic(context.Background(), partitions, 1, nil, "c"); err != nil {
					t.Fatal(err)
				}
				w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a", "b", "c"}, Ordering: subscriptions.OrderingKey})
				all := []*process{w.start(), w.start()}
				w.sleep(time.Minute)
				const keys = 20
				for round := range 2 {
					for _, topic := range []string{"b", "c", "a"} {
						for k := range keys {
							w.produce(topic, "k"+strconv.Itoa(k), topic+strconv.Itoa(round))
						}
						w.sleep(10 * time.Millisecond) // the records of a topic are older than the records of the next
					}
				}
				w.sleep(time.Second)
				got := make(map[string][]string)
				for range 6 {
					inFlight := make(map[string]bool)
					var received [2][]subscriptions.Message
					for i, p := range all {
						received[i] = p.all()
						for _, m := range received[i] {
							if inFlight[m.Key] {
								t.Errorf("two messages of %s are in flight", m.Key)
							}
							inFlight[m.Key] = true
							got[m.Key] = append(got[m.Key], nameOfMessage(&m))
						}
					}
					for i, p := range all {
						p.ok(subscriptions.ActionAck, received[i]...)
					}
					w.sleep(10 * time.Millisecond)
				}
				for k := range keys {
					names := got["k"+strconv.Itoa(k)]
					slices.Sort(names[:min(3, len(names))]) // their topics were read in any order
					if want := []string{"a0", "b0", "c0", "b1", "c1", "a1"}; !slices.Equal(names, want) {
						t.Errorf("received %v of k%d, want %v", names, k, want)
					}
				}
			})
		})
	}
}

// A dead letter of one topic blocks its key in the others, also after a restart, until it is
// closed.
func TestEngine_StrictOverTopics(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a", "b"}, Ordering: subscriptions.OrderingStrict})
		p := w.start()
		w.publish(message("a", "k", "bad"))
		w.sleep(time.Second)
		p.ok(subscriptions.ActionReject, p.receive(1, time.Second)...)
		w.publish(message("b", "k", "next"))
		if got := p.receive(1, 10*time.Second); len(got) != 0 {
			t.Fatalf("%v passes the dead letter of another topic", names(got))
		}
		p.stop()
		p = w.start()
		if got := p.receive(1, 10*time.Second); len(got) != 0 {
			t.Fatalf("%v passes the dead letter of another topic after a restart", names(got))
		}
		w.closeDeadLetters()
		w.sleep(2 * reportInterval)
		if got := p.receive(1, time.Second); len(got) != 1 || nameOfMessage(&got[0]) != "next" {
			t.Fatalf("received %v after the dead letter was closed", names(got))
		}
	})
}

// A topic that gets more partitions, or is created with another number, moves keys to other
// owners without two owners of a key at a time.
func TestEngine_KeysAfterMorePartitions(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a", "b"}})
		first, second := w.start(), w.start()
		w.sleep(time.Minute)
		if _, err := w.adm.CreatePartitions(context.Background(), 2, "a"); err != nil {
			t.Fatal(err)
		}
		w.sleep(time.Minute)
		units := make(map[int32]*process)
		total := 0
		for _, p := range []*process{first, second} {
			g, _, err := p.group(context.Background(), "s")
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range g.ownedPartitions() {
				total++
				if u := part.number % 2; units[u] != nil && units[u] != p {
					t.Errorf("the keys of partition %d have two owners", part.number)
				} else {
					units[u] = p
				}
			}
		}
		if total != 10 || len(units) != 2 {
			t.Errorf("%d partitions in %d units have an owner", total, len(units))
		}
	})
}
