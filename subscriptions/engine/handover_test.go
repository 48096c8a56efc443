package engine

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/plugin"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

// anywhere applies an action to messages at the engines that have their partitions, as package
// forward does.
func (w *world) anywhere(a subscriptions.Action, ps []*process, messages ...subscriptions.Message) []subscriptions.Code {
	w.t.Helper()
	codes := make([]subscriptions.Code, len(messages))
	for i := range messages {
		for end := time.Now().Add(time.Minute); time.Now().Before(end); _ = retry.Wait(context.Background(), 100*time.Millisecond) {
			for _, p := range ps {
				results, err := p.Settle(context.Background(), "s", []subscriptions.Settle{{Action: a, Receipt: messages[i].Receipt}})
				if err == nil && results[0].Code != subscriptions.CodeUnavailable && results[0].Code != subscriptions.CodeUnknown {
					codes[i] = results[0].Code
				}
			}
			if codes[i] != "" {
				break
			}
		}
	}
	return codes
}

func allOK(codes []subscriptions.Code) bool {
	return !slices.ContainsFunc(codes, func(c subscriptions.Code) bool { return c != subscriptions.CodeOK })
}

// nothing fails the test if a message is delivered.
func (w *world) nothing(step string, ps ...*process) {
	w.t.Helper()
	for _, p := range ps {
		if got := p.all(); len(got) > 0 {
			w.t.Errorf("%s: %v are delivered", step, names(got))
		}
	}
}

// Leases live on when a second owner joins, when the first one leaves, and when all are
// replaced. Every receipt holds, and no message is delivered again.
func TestEngine_HandOverJoinLeaveAndReplacement(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a", "b"}, Start: subscriptions.StartEarliest, VisibilityTimeout: 10 * time.Minute})
		w.many("a", 0, 30, 30)
		w.many("b", 30, 30, 30) // the same keys
		one := w.start()
		first := one.all()
		if len(first) != 30 {
			t.Fatalf("%d messages are leased, want one of each key", len(first))
		}
		two := w.start()
		w.sleep(30 * time.Second)
		w.nothing("after a second owner has joined", one, two)
		if got := w.anywhere(subscriptions.ActionAck, []*process{one, two}, first[:10]...); !allOK(got) {
			t.Errorf("acknowledged after the join: %v", got)
		}
		if got := w.anywhere(subscriptions.ActionAck, []*process{one, two}, first[:10]...); !allOK(got) {
			t.Errorf("acknowledged again: %v", got)
		}
		second := append(one.all(), two.all()...)
		if len(second) != 10 {
			t.Errorf("%v follow, want the next one of each of the 10 keys", names(second))
		}
		one.stop()
		w.sleep(30 * time.Second)
		w.nothing("after the first owner has left", two)
		three := w.start()
		two.stop()
		w.sleep(30 * time.Second)
		w.nothing("after the second owner was replaced", three)
		open := append(slices.Clone(first[10:]), second...)
		if got := w.anywhere(subscriptions.ActionExtend, []*process{three}, open...); !allOK(got) {
			t.Errorf("extended at the third owner: %v", got)
		}
		if got := w.anywhere(subscriptions.ActionAck, []*process{three}, open...); !allOK(got) {
			t.Errorf("acknowledged at the third owner: %v", got)
		}
		rest := three.all()
		if len(rest) != 20 {
			t.Errorf("%v follow, want the last 20", names(rest))
		}
		three.ok(subscriptions.ActionAck, rest...)
		w.nothing("at the end", three)
	})
}

// Actions on a lease before the hand-over and after it have the same effect as at one owner.
func TestEngine_HandOverActions(t *testing.T) {
	t.Parallel()
	for name, stored := range map[string]bool{"first delivery": false, "stored after a failure": true} {
		for _, a := range []subscriptions.Action{subscriptions.ActionAck, subscriptions.ActionNack, subscriptions.ActionReject, subscriptions.ActionRelease, subscriptions.ActionExtend} {
			t.Run(name+", "+string(a), func(t *testing.T) {
				t.Parallel()
				inBubble(t, func(w *world) {
					w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Start: subscriptions.StartEarliest, VisibilityTimeout: 5 * time.Minute, MaxReceive: 3, Backoff: time.Second, MaxBackoff: time.Second})
					w.many("a", 0, 8, 4)
					one := w.start()
					leases := one.all()
					if stored {
						one.ok(subscriptions.ActionNack, leases...)
						w.sleep(5 * time.Second)
						leases = one.all()
					}
					if len(leases) != 4 {
						t.Fatalf("%v are leased", names(leases))
					}
					one.stop()
					two := w.start()
					w.nothing("after the hand-over", two)
					if got := w.anywhere(a, []*process{two}, leases...); !allOK(got) {
						t.Fatalf("%s of %v", got, names(leases))
					}
					w.sleep(10 * time.Second)
					next := two.all()
					attempt, count := 0, 4
					switch a {
					case subscriptions.ActionAck, subscriptions.ActionReject:
						attempt = 1 // the next ones of the keys
					case subscriptions.ActionNack:
						attempt = leases[0].Attempt + 1
					case subscriptions.ActionRelease:
						attempt = leases[0].Attempt
					default:
						count = 0
					}
					if len(next) != count {
						t.Fatalf("%v follow, want %d", names(next), count)
					}
					for _, m := range next {
						if m.Attempt != attempt {
							t.Errorf("%s has attempt %d, want %d", nameOfMessage(&m), m.Attempt, attempt)
						}
					}
					dead := 0
					if a == subscriptions.ActionReject {
						dead = 4
					}
					if got := w.db.letters(); len(got) != dead {
						t.Errorf("%d dead letters, want %d", len(got), dead)
					} else if dead > 0 && got[0].Attempts != leases[0].Attempt {
						t.Errorf("the dead letter has %d attempts, want %d", got[0].Attempts, leases[0].Attempt)
					}
					if a == subscriptions.ActionExtend {
						next = leases
					}
					if got := w.anywhere(subscriptions.ActionAck, []*process{two}, next...); !allOK(got) {
						t.Errorf("at the end: %v", got)
					}
				})
			})
		}
	}
}

// Leases that nobody settles end by their time, whether an owner was there or not: the delivery
// has failed, and the receipts are refused.
func TestEngine_HandOverExpiredLeases(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]time.Duration{"after the hand-over": 0, "without an owner": 2 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Start: subscriptions.StartEarliest, VisibilityTimeout: time.Minute, MaxReceive: 2, Backoff: time.Second, MaxBackoff: time.Second})
				w.many("a", 0, 8, 4)
				one := w.start()
				leases := one.all()
				one.stop()
				w.sleep(away)
				two := w.start()
				w.sleep(time.Minute)
				if got := two.settle(subscriptions.ActionAck, leases...); got[0] != subscriptions.CodeLeaseExpired {
					t.Errorf("acknowledged after the end: %v", got)
				}
				again := two.all()
				if len(again) != 4 || again[0].Attempt != 2 {
					t.Fatalf("%v are delivered again: %+v", names(again), again)
				}
				two.stop()
				three := w.start()
				w.sleep(2 * time.Minute)
				if got := w.db.letters(); len(got) != 4 {
					t.Errorf("%d dead letters after the last delivery, want 4", len(got))
				}
				three.ok(subscriptions.ActionAck, three.all()...)
				w.nothing("at the end", three)
			})
		})
	}
}

// A run of a key lives on as a run.
func TestEngine_HandOverRuns(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Start: subscriptions.StartEarliest, VisibilityTimeout: 5 * time.Minute})
		w.many("a", 0, 40, 2)
		one := w.start()
		run := func(p *process, n int) (out []subscriptions.Message) {
			t.Helper()
			out, err := p.Receive(context.Background(), "s", subscriptions.Receive{Max: 100, MaxPerKey: n})
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		leases := run(one, 5)
		if len(leases) != 10 {
			t.Fatalf("%v are leased", names(leases))
		}
		one.ok(subscriptions.ActionAck, leases[:2]...)
		two := w.start()
		one.stop()
		w.sleep(30 * time.Second)
		w.nothing("after the hand-over", two)
		if got := two.settle(subscriptions.ActionAck, leases[3]); got[0] != subscriptions.CodeOutOfOrder {
			t.Errorf("acknowledged out of order: %v", got)
		}
		two.ok(subscriptions.ActionAck, leases[2:4]...)
		two.ok(subscriptions.ActionNack, leases[4]) // the last one of its run
		two.ok(subscriptions.ActionAck, leases[5:9]...)
		two.ok(subscriptions.ActionRelease, leases[9])
		w.sleep(5 * time.Second)
		next := run(two, 3)
		if len(next) != 6 || nameOfMessage(&next[0]) != nameOfMessage(&leases[4]) && nameOfMessage(&next[0]) != nameOfMessage(&leases[9]) {
			t.Errorf("%v follow", names(next))
		}
		for len(next) > 0 {
			two.ok(subscriptions.ActionAck, next...)
			next = run(two, 10)
		}
	})
}

// After an unplanned end the leases are lost: the messages are delivered again, and the receipts
// are refused. So are receipts that the dead owner had inherited.
func TestEngine_HandOverNotAfterAKill(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Start: subscriptions.StartEarliest, VisibilityTimeout: 10 * time.Minute})
		w.many("a", 0, 8, 8)
		one := w.start()
		first := one.receive(4, 0)
		one.stop()
		two := w.start()
		second := two.all()
		if len(second) != 4 {
			t.Fatalf("%v are leased, want the other four", names(second))
		}
		two.kill()
		three := w.start()
		w.sleep(time.Minute)
		again := three.all()
		if len(again) != 8 {
			t.Errorf("%v are delivered, want all", names(again))
		}
		for i, c := range three.settle(subscriptions.ActionAck, append(first, second...)...) {
			if c != subscriptions.CodeLeaseExpired {
				t.Errorf("receipt %d of a dead owner: %s", i, c)
			}
		}
		three.ok(subscriptions.ActionAck, again...)
	})
}

// A hand-over that interrupts the load of the next owner, or the database's outage during it,
// loses no lease.
func TestEngine_HandOverWhilePartitionsLoad(t *testing.T) {
	t.Parallel()
	for _, op := range []string{"claim", "messages", "hand-over", "set hand-over", "trim"} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a", "b"}, Start: subscriptions.StartEarliest, VisibilityTimeout: 30 * time.Minute})
				w.many("a", 0, 16, 16)
				one := w.start()
				leases := one.all()
				one.stop()
				w.db.fail(func(failing string) (bool, error) {
					if failing == op {
						return true, errTest
					}
					return false, nil
				})
				two := w.start()
				w.sleep(20 * time.Second)
				three := w.start() // the load of some partitions is interrupted
				w.sleep(20 * time.Second)
				two.stop()
				w.sleep(20 * time.Second)
				w.db.fail(nil)
				w.sleep(time.Minute)
				w.nothing("after the outage", three)
				if got := w.anywhere(subscriptions.ActionAck, []*process{three}, leases...); !allOK(got) {
					t.Errorf("acknowledged: %v", got)
				}
			})
		})
	}
}

// An operator ends no lease that is being handed over: the next owner continues it.
func TestEngine_HandOverIsFinal(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		ctx := context.Background()
		w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Start: subscriptions.StartEarliest, VisibilityTimeout: 5 * time.Minute})
		w.many("a", 0, 32, 32)
		one := w.start()
		leases := one.all()
		page, err := one.Leases(ctx, "s", "", 100)
		listed := page.Leases
		if err != nil || len(listed) != 32 {
			t.Fatalf("the leases are %+v: %v", listed, err)
		}
		var tried atomic.Int32
		w.db.handsOver = func(p store.Partition) {
			for i := range listed {
				if listed[i].Partition != p.Number {
					continue
				}
				tried.Add(1)
				id, err := subscriptions.ParseLeaseID(listed[i].ID)
				if err != nil {
					t.Error(err)
				} else if one.EndLease(ctx, "s", id, subscriptions.ActionRelease, "eve") == nil {
					t.Errorf("lease %s is released while it is handed over", listed[i].ID)
				}
			}
		}
		two := w.start() // gets a part of the partitions
		w.sleep(30 * time.Second)
		if w.db.handsOver = nil; tried.Load() == 0 {
			t.Fatal("no leases were handed over")
		}
		w.nothing("after the hand-over", one, two)
		if got := w.anywhere(subscriptions.ActionAck, []*process{one, two}, leases...); !allOK(got) {
			t.Errorf("acknowledged: %v", got)
		}
	})
}

// A database that does not answer to a write does not delay the hand-over, and whether it has
// applied the write or not, the delivery has failed once, as the consumer has requested.
func TestEngine_HandOverDuringAWrite(t *testing.T) {
	t.Parallel()
	for name, applied := range map[string]bool{"applied": true, "not applied": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Start: subscriptions.StartEarliest, VisibilityTimeout: 5 * time.Minute, MaxReceive: 2, Backoff: time.Second, MaxBackoff: time.Second})
				w.many("a", 0, 1, 1)
				one := w.start()
				leases := one.all()
				w.db.saves = func(ctx context.Context) (bool, error) {
					_ = retry.Wait(ctx, 2*time.Minute)
					return applied, errors.Join(errTest, ctx.Err())
				}
				codes := make(chan []subscriptions.Code, 1)
				go func() { codes <- one.settle(subscriptions.ActionNack, leases...) }()
				w.sleep(time.Second)
				began := time.Now()
				one.stop()
				if d := time.Since(began); d > drainTimeout+handOverTimeout {
					t.Errorf("the hand-over took %s", d)
				}
				if got := <-codes; got[0] != subscriptions.CodeUnavailable {
					t.Errorf("the outcome is %v, want unavailable", got)
				}
				w.db.saves = nil
				two := w.start()
				w.sleep(10 * time.Second)
				w.nothing("before the repetition", two)
				if got := w.anywhere(subscriptions.ActionNack, []*process{two}, leases...); !allOK(got) {
					t.Errorf("repeated: %v", got)
				}
				w.sleep(10 * time.Second)
				again := two.all()
				if len(again) != 1 || again[0].Attempt != 2 {
					t.Fatalf("%+v are delivered again, want attempt 2", again)
				}
				two.ok(subscriptions.ActionAck, again...)
			})
		})
	}
}

// asked is a context that calls f when somebody waits for its end.
type asked struct {
	context.Context
	f func()
}

func (a asked) Done() <-chan struct{} { a.f(); return a.Context.Done() }

// A lease whose receipt nobody gets is returned, and so not handed over: its message is delivered
// at once, and the delivery does not count.
func TestEngine_HandOverOnlyOfLeasesWithReceipts(t *testing.T) {
	t.Parallel()
	for name, auto := range map[string]bool{"the caller has gone": false, "the acknowledgement was refused": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Start: subscriptions.StartEarliest, VisibilityTimeout: 5 * time.Minute})
				w.many("a", 0, 8, 8)
				one := w.start()
				g, _, err := one.group(context.Background(), "s")
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				got, err := one.Receive(asked{ctx, func() { // after the messages are leased
					if !auto {
						cancel()
						return
					}
					for _, p := range g.ownedPartitions() {
						p.mu.Lock()
						p.mu.leaving = true
						p.mu.Unlock()
					}
				}}, "s", subscriptions.Receive{Max: 8, AutoAck: auto})
				if err != nil || len(got) != 0 {
					t.Errorf("%v are received: %v", names(got), err)
				}
				one.stop()
				two := w.start()
				again := two.all()
				if len(again) != 8 || slices.ContainsFunc(again, func(m subscriptions.Message) bool { return m.Attempt != 1 }) {
					t.Fatalf("%v are delivered, want all with attempt 1", names(again))
				}
				two.ok(subscriptions.ActionAck, again...)
			})
		})
	}
}

// The coordinator refuses a commit during a rebalance, also of a generation that it has just ended
// while this member has not received the response to its JoinGroup. Leases live on, and
// acknowledgements are confirmed later. They end if this instance is no member any more.
func TestEngine_CommitDuringARebalance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err   *kerr.Error
		again int // messages that are delivered again
	}{
		{kerr.RebalanceInProgress, 0},
		{kerr.IllegalGeneration, 0},
		{kerr.StaleMemberEpoch, 0},
		{kerr.UnknownMemberID, 8},
		{kerr.FencedInstanceID, 8},
		{kerr.FencedMemberEpoch, 8},
	} {
		t.Run(c.err.Message, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Start: subscriptions.StartEarliest, VisibilityTimeout: 5 * time.Minute})
				for i, key := 0, "k"; i < 8; i, key = i+1, keyBeside(key) { // of one partition
					w.produce("a", key, "e"+strconv.Itoa(i))
				}
				p := w.start()
				leases := p.all()
				if len(leases) != 8 {
					t.Fatalf("%v are leased", names(leases))
				}
				w.broker.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: c.err, Count: 3})
				codes := p.settle(subscriptions.ActionAck, leases[:2]...)
				if want := c.again == 0; allOK(codes) != want {
					t.Errorf("acknowledged: %v, want ok: %t", codes, want)
				}
				w.sleep(time.Minute)
				again := p.all()
				if len(again) != c.again {
					t.Errorf("%v are delivered again, want %d", names(again), c.again)
				}
				if c.again == 0 {
					again = leases[2:]
				}
				p.ok(subscriptions.ActionAck, again...)
			})
		})
	}
}

// A change from no order to the order of keys keeps the leases of a key, one by one.
func TestEngine_HandOverBetweenOrders(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		s := subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Start: subscriptions.StartEarliest, VisibilityTimeout: 10 * time.Minute, Ordering: subscriptions.OrderingNone}
		w.put(s)
		w.many("a", 0, 4, 1)
		p := w.start()
		leases := p.all()
		if len(leases) != 4 {
			t.Fatalf("%v are leased, want all of the key", names(leases))
		}
		s.Ordering = subscriptions.OrderingKey
		w.put(s)
		w.sleep(time.Minute)
		w.many("a", 4, 1, 1)
		w.sleep(time.Second)
		for _, i := range []int{2, 0, 3} {
			w.nothing("while the key is leased", p)
			p.ok(subscriptions.ActionAck, leases[i])
		}
		p.ok(subscriptions.ActionExtend, leases[1])
		w.nothing("before the last one", p)
		p.ok(subscriptions.ActionAck, leases[1])
		if next := p.all(); len(next) != 1 || nameOfMessage(&next[0]) != "e4" {
			t.Errorf("%v follow, want e4", names(next))
		}
	})
}

// Leases beyond the limits of a hand-over end: the database does not store them in time, or they
// need too much space. Their messages are delivered again, their number is counted and logged, and
// the others live on.
func TestEngine_HandOverBeyondItsLimits(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		away bool // the database
		keys int  // of 900 KiB
		lost int
	}{"within the limits": {false, 3, 0}, "too large": {false, 9, 3}, "no database": {true, 3, 3}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(w *world) {
				w.put(subscriptions.Subscription{Name: "s", Topics: []string{"a"}, Start: subscriptions.StartEarliest, VisibilityTimeout: 10 * time.Minute})
				client, err := kgo.NewClient(kgo.SeedBrokers("127.0.0.1:9092"), kgo.Dialer(w.net.DialContext), kgo.RecordPartitioner(kgo.ManualPartitioner()))
				if err != nil {
					t.Fatal(err)
				}
				defer client.Close()
				for i := range c.keys { // of one partition
					r := event("a", "k", "e"+strconv.Itoa(i))
					r.Key = append(make([]byte, 900<<10), byte(i))
					if err := client.ProduceSync(context.Background(), r).FirstErr(); err != nil {
						t.Fatal(err)
					}
				}
				one := w.start()
				leases := one.all()
				if len(leases) != c.keys {
					t.Fatalf("%v are leased", names(leases))
				}
				if c.away {
					w.db.fail(func(op string) (bool, error) {
						if op == "set hand-over" {
							return false, errTest
						}
						return false, nil
					})
				}
				g, _, err := one.group(context.Background(), "s")
				if err != nil {
					t.Fatal(err)
				}
				counter := g.metrics.notHandedOver
				one.stop()
				w.db.fail(nil)
				two := w.start()
				again := two.all()
				if len(again) != c.lost || testutil.ToFloat64(counter) != float64(c.lost) {
					t.Errorf("%v are delivered again, and %v are counted, want %d", names(again), testutil.ToFloat64(counter), c.lost)
				}
				if logged := strings.Contains(w.log.String(), "failed to hand over leases of a partition"); logged != (c.lost > 0) {
					t.Errorf("logged: %t", logged)
				}
				lost := 0
				for _, code := range w.anywhere(subscriptions.ActionAck, []*process{two}, leases...) {
					if code == subscriptions.CodeLeaseExpired {
						lost++
					} else if code != subscriptions.CodeOK {
						t.Errorf("acknowledged: %s", code)
					}
				}
				if lost != c.lost {
					t.Errorf("%d receipts have ended, want %d", lost, c.lost)
				}
			})
		})
	}
}

// However many requests wait for the next owner of a partition, it is read a few times a second, and
// a request that ends fails no other one.
func TestEngine_HoldersAreReadOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var h holders
		var reads atomic.Int32
		broken := true
		read := func(ctx context.Context, p store.Partition) (store.Owner, error) {
			reads.Add(1)
			time.Sleep(holderAge / 2)
			if broken {
				return store.Owner{}, errTest
			}
			return store.Owner{Owner: p.Topic + "-owner"}, ctx.Err()
		}
		ask := func(n int) {
			t.Helper()
			gone, leave := context.WithCancel(t.Context())
			var all sync.WaitGroup
			for i := range n {
				ctx := t.Context()
				if i == 0 {
					ctx = gone
				}
				all.Go(func() {
					name, err := h.find(ctx, store.Partition{Topic: "a"}, read)
					if want := map[bool]string{false: "a-owner"}[broken || i == 0]; name != want || (err == nil) != (want != "") {
						t.Errorf("request %d: %q, %v", i, name, err)
					}
				})
				synctest.Wait()
			}
			leave()
			all.Wait()
		}
		ask(50)
		if n := reads.Load(); n != 1 {
			t.Errorf("%d reads for 50 requests", n)
		}
		broken = false
		ask(50) // the error is not kept
		for range 100 {
			if name, err := h.find(t.Context(), store.Partition{Topic: "a"}, read); name != "a-owner" || err != nil {
				t.Fatalf("%q, %v", name, err)
			}
		}
		if n := reads.Load(); n != 2 {
			t.Errorf("%d reads, want one more", n)
		}
		time.Sleep(holderAge + time.Millisecond)
		ask(1 + 1)
		if n := reads.Load(); n != 3 {
			t.Errorf("%d reads, want one after %s", n, holderAge)
		}
	})
}

// Failed calls count although the database has not stored it, wherever the next call is made.
func TestPush_HandOverOfFailedCalls(t *testing.T) {
	t.Parallel()
	inBubble(t, func(w *world) {
		r := newReceiver(t, func(context.Context, plugin.Event) error { return errTest })
		w.put(pushTo(subscriptions.Subscription{MaxReceive: 2, Backoff: time.Second, MaxBackoff: time.Second}))
		w.db.saves = func(context.Context) (bool, error) { return false, errTest }
		one := w.start(plugins(r))
		w.many("a", 0, 1, 1)
		w.sleep(10 * time.Second)
		one.stop()
		w.db.saves = nil
		w.start(plugins(r))
		w.sleep(time.Minute)
		if n := len(r.of("e0")); n != 2 {
			t.Errorf("%d calls, want 2", n)
		}
		if got := w.db.letters(); len(got) != 1 || got[0].Attempts != 2 {
			t.Errorf("the dead letters are %+v, want one of 2 attempts", got)
		}
	})
}
