package engine

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	testworld "github.com/scylla-outbox/scylla-outbox/test/world"
)

// The messages of a key are delivered one at a time, and acknowledged ones never again.
func TestEngine_DeliversInOrderOfKeys(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}})
		p := w.start()
		w.many("a", 0, 20, 4)
		w.sleep(time.Second)
		for round := range 5 {
			got := p.all()
			var want []string
			for i := range 4 {
				want = append(want, "e"+itoa(round*4+i))
			}
			have := names(got)
			slices.Sort(have)
			slices.Sort(want)
			if !slices.Equal(have, want) {
				t.Fatalf("round %d: %v, want %v", round, have, want)
			}
			p.ok(subscriptions.ActionAck, got...)
			p.ok(subscriptions.ActionAck, got...) // repeated
		}
		p.stop()
		q := w.start()
		if again := q.receive(100, time.Minute/6); len(again) > 0 {
			t.Errorf("%v are delivered after their acknowledgement", names(again))
		}
		if w.db.saved != 0 {
			t.Errorf("%d messages were stored, want none", w.db.saved)
		}
	})
}

func itoa(n int) string { return strconv.Itoa(n) }

// A failed delivery is stored, delayed and repeated; after max_receive it is a dead
// letter, and the key continues.
func TestEngine_FailedDeliveries(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, MaxReceive: 3, Backoff: 2 * time.Second, VisibilityTimeout: 10 * time.Second})
		p := w.start()
		w.produce("a", "k", "e0")
		w.produce("a", "k", "e1")
		w.produce("a", "other", "e2", kgo.RecordHeader{Key: subscriptions.HeaderMaxReceive, Value: []byte("1")})
		w.sleep(time.Second)
		first := p.all()
		if len(first) != 2 {
			t.Fatalf("%v, want e0 and e2", names(first))
		}
		p.ok(subscriptions.ActionNack, first...)
		if n := w.db.rowCount(); n != 1 {
			t.Fatalf("%d messages are stored, want e0", n)
		}
		w.sleep(time.Second)
		if l := w.db.letters(); len(l) != 1 || l[0].Headers["name"] != "e2" || l[0].Attempts != 1 || l[0].Table != "subscription.s" || l[0].Status != dlq.Suspended {
			t.Fatalf("dead letters %+v, want e2 after one delivery", l)
		}
		if got := p.all(); len(got) > 0 {
			t.Fatalf("%v before the delay", names(got))
		}
		w.sleep(2 * time.Second)
		second := p.all()
		if len(second) != 1 || nameOfMessage(&second[0]) != "e0" || second[0].Attempt != 2 {
			t.Fatalf("%+v, want the second delivery of e0", second)
		}
		w.sleep(11 * time.Second) // it expires
		if c := p.settle(subscriptions.ActionAck, second...); c[0] != subscriptions.CodeLeaseExpired {
			t.Errorf("acknowledgement of an expired lease = %s", c[0])
		}
		w.sleep(5 * time.Second)
		third := p.all()
		if len(third) != 1 || third[0].Attempt != 3 {
			t.Fatalf("%+v, want the third delivery of e0", third)
		}
		p.ok(subscriptions.ActionNack, third...)
		w.sleep(time.Second)
		last := p.all()
		if len(w.db.letters()) != 2 || len(last) != 1 || nameOfMessage(&last[0]) != "e1" {
			t.Fatalf("%d dead letters, then %v; want 2, then e1", len(w.db.letters()), names(last))
		}
		p.ok(subscriptions.ActionAck, last...)
		w.sleep(2 * time.Second)
		if n := w.db.rowCount(); n != 0 {
			t.Errorf("%d messages are left in the database", n)
		}
	})
}

// 1,000 messages that always fail do not stop the others, also when the window is full.
func TestEngine_FailuresDoNotStallOtherKeys(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("many variants")
	}
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, MaxReceive: 1000, Backoff: time.Minute})
		p := w.start()
		var bad []*kgo.Record
		for i := range 1000 {
			bad = append(bad, event("a", "bad"+itoa(i), "bad"))
		}
		w.publish(bad...)
		const good = 20_000
		w.many("a", 0, good, 5000)
		w.sleep(time.Second)
		done := 0
		end := time.Now().Add(5 * time.Minute)
		for done < good && time.Now().Before(end) {
			got := p.receive(1000, time.Second)
			var bad, ok []subscriptions.Message
			for _, m := range got {
				if strings.HasPrefix(m.AggregateID, "bad") {
					bad = append(bad, m)
				} else {
					ok = append(ok, m)
				}
			}
			p.ok(subscriptions.ActionNack, bad...)
			p.ok(subscriptions.ActionAck, ok...)
			done += len(ok)
		}
		if done != good {
			t.Errorf("%d of %d messages were delivered in five minutes", done, good)
		}
		if n := w.db.rowCount(); n != 1000 {
			t.Errorf("%d messages are stored, want the 1000 failing ones", n)
		}
	})
}

// A message that is leased for hours does not stop the others: it is stored, and its
// acknowledgement still counts.
func TestEngine_LongLeasePassesTheWindow(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, VisibilityTimeout: 2 * time.Hour})
		p := w.start()
		w.produce("a", "k0", "first")
		w.sleep(time.Second)
		first := p.all()
		// Messages of the same key wait behind it, in the same partition as the last one.
		w.many("a", 0, 12_000, 1)
		other := event("a", keyBeside("k0"), "last")
		w.publish(other)
		w.sleep(time.Minute)
		got := p.all()
		if len(got) != 1 || nameOfMessage(&got[0]) != "last" {
			t.Fatalf("%v, want the one of another key", names(got))
		}
		p.ok(subscriptions.ActionAck, append(got, first...)...)
		for i := range 3 {
			got := p.receive(10, time.Second)
			if len(got) != 1 || nameOfMessage(&got[0]) != "e"+itoa(i) {
				t.Fatalf("%v, want e%d", names(got), i)
			}
			p.ok(subscriptions.ActionAck, got...)
		}
	})
}

func TestEngine_Pause(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}})
		p := w.start()
		w.many("a", 0, 4, 4)
		w.sleep(time.Second)
		one := p.receive(1, 0)
		if err := p.Pause(context.Background(), "s", "test"); err != nil {
			t.Fatal(err)
		}
		w.sleep(2 * time.Second)
		if got := p.receive(10, time.Second); len(got) > 0 {
			t.Fatalf("%v are delivered while it is paused", names(got))
		}
		p.ok(subscriptions.ActionAck, one...) // a lease stays valid
		if err := p.Resume(context.Background(), "s", "test"); err != nil {
			t.Fatal(err)
		}
		if got := p.receive(10, 5*time.Second); len(got) != 3 {
			t.Errorf("%v after resume, want three", names(got))
		}
	})
}

func TestEngine_Seek(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Backoff: time.Hour, MaxBackoff: time.Hour})
		p := w.start()
		w.many("a", 0, 10, 10)
		w.sleep(time.Minute)
		half := time.Now()
		w.many("a", 10, 10, 10)
		w.sleep(time.Second)
		got := p.all()
		p.ok(subscriptions.ActionAck, got[1:]...)
		p.ok(subscriptions.ActionNack, got[0])
		p.ok(subscriptions.ActionAck, p.all()...)
		seek := func(to string) {
			t.Helper()
			if err := p.Seek(context.Background(), "s", subscriptions.Seek{To: to, Partition: -1}, "test"); err != nil {
				t.Fatal(err)
			}
			w.sleep(10 * time.Second)
		}
		count := func(want int) {
			t.Helper()
			n := 0
			for {
				got := p.receive(1000, 2*time.Second)
				if len(got) == 0 {
					break
				}
				n += len(got)
				p.ok(subscriptions.ActionAck, got...)
			}
			if n != want || w.db.rowCount() != 0 {
				t.Fatalf("%d messages after the seek, %d stored; want %d and none", n, w.db.rowCount(), want)
			}
		}
		seek(subscriptions.StartEarliest)
		count(20)
		seek(half.Format(time.RFC3339Nano))
		count(10)
		seek(subscriptions.StartLatest)
		count(0)
		// A seek is applied once, also by the next owner.
		seek(subscriptions.StartEarliest)
		count(20)
		p.stop()
		p = w.start()
		count(0)
	})
}

// A seek is applied to partitions that are loading, and to loaded ones that the client has
// not begun to read because others of the same assignment are loading.
func TestEngine_SeekWhilePartitionsLoad(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}})
		p := w.start()
		w.many("a", 0, 40, 40)
		w.sleep(time.Second)
		got := p.all()
		p.ok(subscriptions.ActionAck, got...)
		p.stop()
		slow := true
		w.db.trims = func() {
			w.db.mu.Lock()
			first := slow
			slow = false
			w.db.mu.Unlock()
			if first {
				time.Sleep(30 * time.Second)
			}
		}
		p = w.start()
		if err := p.Seek(context.Background(), "s", subscriptions.Seek{To: subscriptions.StartEarliest, Partition: -1}, "test"); err != nil {
			t.Fatal(err)
		}
		w.sleep(40 * time.Second)
		if again := p.all(); len(again) != len(got) || len(got) != 40 {
			t.Errorf("%d of %d messages after the seek", len(again), len(got))
		}
	})
}

// A committed position past the end of the log, after the broker lost records or by
// another program, does not hide the records that come.
func TestEngine_PositionPastTheEnd(t *testing.T) {
	t.Parallel()
	for name, epoch := range map[string]int32{"with leader epoch": 0, "without leader epoch": -1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}})
				p := w.start()
				w.many("a", 0, 40, 40)
				w.sleep(time.Second)
				p.ok(subscriptions.ActionAck, p.all()...)
				r, err := w.db.Get(context.Background(), "s")
				if err != nil {
					t.Fatal(err)
				}
				p.stop()
				offsets := make(kadm.Offsets)
				for n := range int32(testPartitions) {
					offsets.Add(kadm.Offset{Topic: "a", Partition: n, At: 1000, LeaderEpoch: epoch})
				}
				if err := w.adm.CommitAllOffsets(context.Background(), r.Incarnation(), offsets); err != nil {
					t.Fatal(err)
				}
				p = w.start()
				w.many("a", 100, 40, 40)
				w.sleep(time.Minute)
				seen := make(map[string]bool)
				for got := p.all(); len(got) > 0; got = p.all() {
					for _, name := range names(got) {
						seen[name] = true
					}
					p.ok(subscriptions.ActionAck, got...)
				}
				for n := 100; n < 140; n++ {
					if !seen["e"+itoa(n)] {
						t.Errorf("message %d is not delivered", n)
					}
				}
			})
		})
	}
}

func TestEngine_Purge(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}})
		p := w.start()
		w.many("a", 0, 100, 100)
		w.sleep(time.Second)
		some := p.receive(10, 0)
		p.ok(subscriptions.ActionNack, some[:5]...)
		w.sleep(time.Millisecond)
		before := time.Now()
		w.many("a", 100, 7, 7)
		w.sleep(time.Second)
		n, err := p.Purge(context.Background(), "s", subscriptions.Purge{Before: time.Date(140, 1, 1, 0, 0, 0, 0, time.UTC), DryRun: true}, "test")
		if err != nil || n != 0 {
			t.Errorf("before any record: %d, %v; want 0", n, err)
		}
		n, err = p.Purge(context.Background(), "s", subscriptions.Purge{Before: before, DryRun: true}, "test")
		if err != nil || n != 95 {
			t.Fatalf("dry run = %d, %v; want 95", n, err)
		}
		if n, err = p.Purge(context.Background(), "s", subscriptions.Purge{Before: before}, "test"); err != nil || n != 95 {
			t.Fatalf("Purge() = %d, %v; want 95", n, err)
		}
		p.ok(subscriptions.ActionAck, some[5:]...)
		w.sleep(time.Minute)
		if got := p.all(); len(got) != 7 {
			t.Errorf("%v after the purge, want the seven newer ones", names(got))
		}
		p.stop()
		p = w.start()
		if got := p.receive(100, 0); len(got) != 0 {
			t.Errorf("%v after a restart, want none: they are leased", names(got))
		}
		w.sleep(time.Minute)
		if got := p.receive(100, 0); len(got) != 7 {
			t.Errorf("%v after their leases have ended, want the seven newer ones", names(got))
		}
	})
}

// Receipts of other subscriptions, of former owners and forged ones change nothing.
func TestEngine_RefusesReceiptsOfOthers(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}})
		w.put(subscriptions.Subscription{Name: "t", Topics: []string{"a"}})
		p := w.start()
		w.many("a", 0, 2, 2)
		w.sleep(time.Second)
		got := p.all()
		results, err := p.Settle(context.Background(), "t", []subscriptions.Settle{{Action: subscriptions.ActionAck, Receipt: got[0].Receipt}, {Action: subscriptions.ActionAck, Receipt: "x"}})
		if err != nil || results[0].Code != subscriptions.CodeInvalid || results[1].Code != subscriptions.CodeInvalid {
			t.Fatalf("%+v, %v; want two invalid receipts", results, err)
		}
		p.kill()
		q := w.start()
		w.sleep(time.Minute)
		if c := q.settle(subscriptions.ActionAck, got...); c[0] != subscriptions.CodeLeaseExpired {
			t.Errorf("acknowledgement of a former owner's lease = %s", c[0])
		}
		again := q.receive(10, time.Second)
		if len(again) != 2 {
			t.Fatalf("%v, want both again", names(again))
		}
		if c := q.settle(subscriptions.ActionAck, got...); c[0] != subscriptions.CodeLeaseExpired || c[1] != subscriptions.CodeLeaseExpired {
			t.Errorf("acknowledgement of former leases = %s", c)
		}
		q.ok(subscriptions.ActionAck, again...)
	})
}

// While the database is away, messages are delivered and acknowledged; failed deliveries
// wait, and their result is unknown.
func TestEngine_DatabaseAway(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}})
		p := w.start()
		w.db.fail(func(string) (bool, error) { return false, errTest })
		w.many("a", 0, 10, 10)
		w.sleep(time.Second)
		got := p.all()
		p.ok(subscriptions.ActionAck, got[1:]...)
		if c := p.settle(subscriptions.ActionNack, got[0]); c[0] != subscriptions.CodeUnknown {
			t.Errorf("return of a message while the database is away = %s", c[0])
		}
		w.sleep(time.Minute)
		w.db.fail(nil)
		w.sleep(10 * time.Second)
		p.ok(subscriptions.ActionNack, got[0]) // the same receipt
		again := p.receive(10, 20*time.Second)
		if len(again) != 1 || again[0].Attempt != 2 {
			t.Fatalf("%+v, want the second delivery", again)
		}
		p.ok(subscriptions.ActionAck, again...)
	})
}

// closeDeadLetters resolves all dead letters.
func (w *world) closeDeadLetters() {
	w.db.mu.Lock()
	defer w.db.mu.Unlock()
	for id, l := range w.db.deadLetters {
		l.Status = dlq.Resolved
		w.db.deadLetters[id] = l
	}
}

// With strict order a key waits until its dead letter is closed.
func TestEngine_StrictOrderWaitsForDeadLetters(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Ordering: subscriptions.OrderingStrict})
		p := w.start()
		w.produce("a", "k", "e0")
		w.produce("a", "k", "e1")
		w.produce("a", "other", "e2")
		w.sleep(time.Second)
		got := p.all()
		i := slices.IndexFunc(got, func(m subscriptions.Message) bool { return nameOfMessage(&m) == "e0" })
		p.ok(subscriptions.ActionReject, got[i])
		p.ok(subscriptions.ActionAck, got[1-i])
		if got := p.receive(10, 20*time.Second); len(got) > 0 {
			t.Fatalf("%v pass the dead letter", names(got))
		}
		p.stop()
		p = w.start() // the next owner knows it, too
		if got := p.receive(10, 20*time.Second); len(got) > 0 {
			t.Fatalf("%v pass the dead letter after a restart", names(got))
		}
		w.closeDeadLetters()
		if got := p.receive(10, 20*time.Second); len(got) != 1 || nameOfMessage(&got[0]) != "e1" {
			t.Errorf("%v after the dead letter is closed, want e1", names(got))
		}
	})
}

// A topic that is deleted and created again is read like a new one, also if a message of
// the former one is stored.
func TestEngine_RecreatedTopic(t *testing.T) {
	t.Parallel()
	eachBroker(t, func(w *world, _ *testworld.BrokerVersion) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Backoff: time.Hour, MaxBackoff: time.Hour})
		p := w.start()
		w.many("a", 0, 10, 10)
		w.sleep(time.Second)
		got := p.all()
		p.ok(subscriptions.ActionNack, got[:3]...)
		p.ok(subscriptions.ActionAck, got[3:]...)
		if _, err := w.adm.DeleteTopics(context.Background(), "a"); err != nil {
			w.t.Fatal(err)
		}
		if _, err := w.adm.CreateTopic(context.Background(), testPartitions, 1, nil, "a"); err != nil {
			w.t.Fatal(err)
		}
		w.producer.PurgeTopicsFromProducing("a")
		w.many("a", 100, 10, 10)
		w.sleep(2 * time.Minute)
		got = p.all()
		if len(got) != 10 {
			w.t.Errorf("%v of the new topic, want ten", names(got))
		}
		p.ok(subscriptions.ActionAck, got...)
	})
}

// Records that are removed by compaction or by a transaction are no gap, and records that
// the filter does not select are settled.
func TestEngine_SelectsByTypeAndFilter(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"*"}, Types: []string{"Ma*"}, Filter: `data.name != "e1"`})
		p := w.start()
		w.many("a", 0, 4, 4)
		if err := w.producer.ProduceSync(context.Background(), &kgo.Record{Topic: "b", Value: []byte("of another program")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		w.sleep(5 * time.Second)
		got := p.all()
		p.ok(subscriptions.ActionAck, got...)
		w.sleep(2 * time.Second)
		st, err := p.Status(context.Background(), "s")
		if err != nil || len(got) != 3 || st.Lag != 0 || len(st.Instances) != 1 || st.Waiting+st.Leased+st.Deferred != 0 {
			t.Errorf("%v, then %+v, %v; want three and no lag", names(got), st, err)
		}
		for _, s := range st.Partitions {
			if s.Owner != "i1" || s.Committed != s.End {
				t.Errorf("%+v, want i1 and all settled", s)
			}
		}
	})
}

// Many requests that wait cost no goroutine of the engine, and each message wakes one.
func TestEngine_WaitingRequests(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}})
		p := w.start()
		results := make(chan int, 100)
		began := time.Now()
		for range 100 {
			go func() {
				got, _ := p.Receive(context.Background(), "s", subscriptions.Receive{Max: 1, Wait: 20 * time.Second})
				if len(got) == 1 && time.Since(began) > 11*time.Second {
					got = nil // it waited for another event
				}
				results <- len(got)
			}()
		}
		w.sleep(10 * time.Second)
		w.many("a", 0, 60, 60)
		total := 0
		for range 100 {
			total += <-results
		}
		if total != 60 {
			t.Errorf("%d messages were received immediately, want 60", total)
		}
	})
}

// An acknowledgement whose commit has no answer is confirmed by a later one.
func TestEngine_CommitWithoutAnswer(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}})
		p := w.start()
		w.many("a", 0, 4, 4)
		w.sleep(time.Second)
		got := p.all()
		p.freeze(true)
		codes := make(chan subscriptions.Code, 1)
		go func() { codes <- p.settle(subscriptions.ActionAck, got...)[0] }()
		w.sleep(3 * time.Second)
		p.cut()
		p.freeze(false)
		if c := <-codes; c != subscriptions.CodeOK {
			t.Errorf("acknowledgement = %s, want ok after the connection is back", c)
		}
		p.ok(subscriptions.ActionAck, got...)
		p.stop()
		if again := w.start().receive(10, 10*time.Second); len(again) > 0 {
			t.Errorf("%v again", names(again))
		}
	})
}

// An instance that is cut off from the coordinator delivers nothing once another one may
// own its partitions.
func TestEngine_FrozenInstanceLeasesNothing(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, VisibilityTimeout: time.Second, MaxReceive: 1000, Backoff: time.Millisecond})
		p := w.start()
		w.many("a", 0, 8, 8)
		w.sleep(time.Second)
		p.freeze(true)
		q := w.start()
		w.sleep(15 * time.Second)
		got := q.all()
		if len(got) != 8 {
			t.Fatalf("%v of the new owner, want eight", names(got))
		}
		q.ok(subscriptions.ActionAck, got...)
		if again := p.all(); len(again) > 0 {
			t.Errorf("%v are delivered by the former owner after their acknowledgement", names(again))
		}
		p.freeze(false)
	})
}

// A message whose dead letter cannot be written delays no other one of its partition: they are
// rejected, returned and purged at once.
func TestEngine_OneFailingItemDelaysNoOther(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, VisibilityTimeout: time.Hour, Backoff: time.Hour, MaxBackoff: time.Hour})
		p := w.start()
		w.produce("a", "k", "poison")
		w.sleep(time.Second)
		poison := p.receive(1, 0)
		w.db.mu.Lock()
		w.db.refused = "poison"
		w.db.mu.Unlock()
		if got := p.settle(subscriptions.ActionReject, poison...); got[0] != subscriptions.CodeUnknown {
			t.Errorf("the result is %v", got)
		}
		w.sleep(time.Minute)
		for i := range 20 {
			w.produce("a", keyBeside("k")+strconv.Itoa(i), "e"+strconv.Itoa(i))
		}
		w.sleep(time.Second)
		began := time.Now()
		for _, m := range p.all() {
			p.ok(subscriptions.ActionReject, m)
		}
		if d := time.Since(began); d > time.Second {
			t.Errorf("20 messages took %s", d)
		}
		if n, err := p.Purge(context.Background(), "s", subscriptions.Purge{}, "test"); n != 0 || err != nil {
			t.Errorf("Purge() = %d, %v", n, err)
		}
		w.db.mu.Lock()
		w.db.refused = ""
		w.db.mu.Unlock()
		w.sleep(10 * time.Second)
		if n := len(w.db.letters()); n != 21 {
			t.Errorf("%d dead letters, want those of all", n)
		}
	})
}
