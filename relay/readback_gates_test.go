package relay

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// A killed relay starts while one of three partitions cannot be read for ten minutes, and
// is killed once more during the wait. The events of the other partitions are published
// within seconds, none are published to that one, and when it can be read nothing is
// published twice and nothing is lost.
func TestReadback_PublishesNothingToAnUnreadPartition(t *testing.T) {
	relaytest.Long(t)
	t.Parallel()
	for name, tt := range map[string]struct {
		fault  kfake.Fault
		shards int
		tail   bool
	}{
		"without a leader":             {kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Err: kerr.LeaderNotAvailable}, 0, true},
		"without a leader, the sweep":  {kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Err: kerr.LeaderNotAvailable}, 0, false},
		"without a leader, two shards": {kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Err: kerr.LeaderNotAvailable}, 2, true},
		"that takes records":           {kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Err: kerr.NotLeaderForPartition}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
					if tt.tail {
						wideWindow(c)
					} else {
						c.Tail = TailOff
					}
				})
				defer w.close()
				var all []outbox.Event
				healthy := 0
				write := func(seq int64) {
					healthy = 0
					for a := range 10 {
						e := relaytest.Event(a, seq, "OrderUpdated")
						if partitionIn3(&e) != 1 {
							healthy++
						}
						all = append(all, e)
						w.write(e)
					}
				}
				// The sweep begins no other generation while the partition's events wait.
				const generations = 5 * time.Minute // of the start
				go func() {
					time.Sleep(generations + time.Second)
					write(1)
					write(2)
				}()
				w.crashAfter(generations + 20*time.Second)
				tt.fault.Topic, tt.fault.Partitions, tt.fault.Count = "OrderUpdated", []int32{1}, -1
				away := w.cluster.Fault(tt.fault)
				go func() {
					time.Sleep(15 * time.Second)
					write(3)
				}()
				w.crashAfter(5 * time.Minute) // in the middle of the wait
				relays, stop := w.runShards(tt.shards)
				time.Sleep(15 * time.Second)
				write(4)
				time.Sleep(10 * time.Second)
				published, named := 0.0, 0
				for _, r := range relays {
					published += testutil.ToFloat64(r.metrics.Published.WithLabelValues("OrderUpdated"))
					named += waitedFor(r)
					if said := strings.Join(r.Status().Problems, "\n"); !strings.Contains(said, "OrderUpdated/1") {
						t.Errorf("the problems are %q, want the partition that is waited for", said)
					}
				}
				if int(published) != healthy {
					t.Errorf("%v events are published, want the %d of the other partitions", published, healthy)
				}
				if named != len(relays) {
					t.Errorf("%d partitions are named as waited for, want one for each of %d relays", named, len(relays))
				}
				time.Sleep(5 * time.Minute)
				away.Remove()
				time.Sleep(2 * time.Minute)
				for _, r := range relays {
					if n := waitedFor(r); n != 0 || len(r.Status().Problems) > 0 {
						t.Errorf("%d partitions are waited for, problems %q, after all is well", n, r.Status().Problems)
					}
				}
				stop()
				relaytest.CheckOrder(t, w.consume("OrderUpdated"), all)
			})
		})
	}
}

// unreadWorld is a world in which a relay was killed after it had published events of ten
// aggregates, and partition 1 of their topic cannot be read.
func unreadWorld(t *testing.T) (w *world, all []outbox.Event, away *kfake.FaultHandle) {
	t.Helper()
	w = newWorld(t, scyllafake.Config{Tokens: 4}, wideWindow)
	all = relaytest.Events(10, 2, "OrderUpdated")
	go func() {
		time.Sleep(time.Second)
		for _, e := range all {
			w.write(e)
		}
	}()
	w.crashAfter(20 * time.Second)
	return w, all, w.cluster.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Metadata}, Topic: "OrderUpdated", Partitions: []int32{1}, Err: kerr.LeaderNotAvailable, Count: -1,
	})
}

// While a partition is unread its events do not become dead letters, whatever the breaker
// does: they may be in their topic. Dead letters of others are replayed when it is read.
func TestReadback_AGatedEventIsNoDeadLetter(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w, all, away := unreadWorld(t)
		defer w.close()
		r, stop := w.run()
		time.Sleep(20 * time.Second)
		reached := w.unreachable()
		healthy := 0
		for a := range 10 {
			e := relaytest.Event(a, 3, "OrderUpdated")
			all = append(all, e)
			w.write(e)
			if partitionIn3(&e) != 1 {
				healthy++
			}
		}
		time.Sleep(5 * time.Minute)
		if s := r.Status().Breaker.State; s == publish.BreakerClosed {
			t.Fatalf("the breaker is %s in an outage", s)
		}
		reached()
		time.Sleep(5 * time.Minute)
		open := w.open()
		for _, e := range all {
			if _, ok := open[e.ID.UUID()]; ok && partitionIn3(&e) == 1 {
				t.Errorf("seq %d of aggregate %s is a dead letter, and may be in its topic", e.Sequence, e.AggregateID)
			}
		}
		if len(open) != healthy {
			t.Errorf("%d dead letters are open while a partition is unread, want %d", len(open), healthy)
		}
		away.Remove()
		time.Sleep(3 * time.Minute)
		if n := len(w.open()); n > 0 {
			t.Errorf("%d dead letters are open after all is well", n)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		relaytest.CheckOrder(t, w.consume("OrderUpdated"), all)
	})
}

// A relay stops without delay while events wait for an unread partition. A topic that is
// made in the meantime is none that has to be read back.
func TestReadback_StopsWhileAPartitionIsUnread(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	inBubble(t, func(t *testing.T) {
		w, all, away := unreadWorld(t)
		defer w.close()
		w.cfg.DrainTimeout = time.Minute
		r, stop := w.run()
		time.Sleep(20 * time.Second)
		made := relaytest.Events(10, 1, "OrderCreated")
		for i := range made {
			made[i] = relaytest.Event(10+i, 1, "OrderCreated")
			w.write(made[i])
		}
		more := relaytest.Events(10, 3, "OrderUpdated")[20:]
		for _, e := range more {
			w.write(e)
		}
		time.Sleep(10 * time.Second)
		if n := testutil.ToFloat64(r.metrics.Published.WithLabelValues("OrderCreated")); int(n) != len(made) {
			t.Errorf("%v events are in the new topic, want %d", n, len(made))
		}
		began := time.Now()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took >= w.cfg.DrainTimeout {
			t.Errorf("the stop took %s, the limit", took)
		}
		away.Remove()
		_, stop = w.run()
		time.Sleep(3 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		relaytest.CheckOrder(t, w.consume("OrderUpdated", "OrderCreated"), append(append(all, more...), made...))
	})
}

// While events wait for an unread partition no more are published to the others than the
// next start can remember, and so none twice.
func TestReadback_PublishesNoMoreThanAStartRemembers(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	inBubble(t, func(t *testing.T) {
		w, all, away := unreadWorld(t)
		defer w.close()
		w.cfg.DedupMemory, w.cfg.MaxInFlightRecords = 80*dedup.BytesPerEvent, 20
		w.cfg.ConfidenceWindow = 10 * time.Second
		r, stop := w.run()
		time.Sleep(20 * time.Second)
		for seq := int64(3); seq <= 12; seq++ {
			for a := range 10 {
				e := relaytest.Event(a, seq, "OrderUpdated")
				if all = append(all, e); partitionIn3(&e) != 1 || seq == 3 {
					w.write(e)
					time.Sleep(time.Second)
				}
			}
		}
		time.Sleep(3 * time.Minute)
		if n := testutil.ToFloat64(r.metrics.Published.WithLabelValues("OrderUpdated")); n < 20 || n > 60-16 {
			t.Errorf("%v events are published, want 20 to 44: 16 of 60 were read back", n)
		}
		away.Remove()
		for _, e := range all {
			if partitionIn3(&e) == 1 && e.Sequence > 3 {
				w.write(e)
			}
		}
		time.Sleep(5 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		relaytest.CheckOrder(t, w.consume("OrderUpdated"), all)
	})
}
