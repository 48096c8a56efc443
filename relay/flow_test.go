package relay

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/topics"
)

// partitionIn3 is the partition of the event in a topic of three.
func partitionIn3(e *outbox.Event) int32 {
	return int32(topics.KeyPartitioner.Partition(&kgo.Record{Key: e.Key()}, 3))
}

// noLeader takes the leader of a partition away, as the broker that receives the records reports
// it, or as all brokers do.
func (w *world) noLeader(topic string, partition int32, metadata bool) (end func()) {
	f := kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Partitions: []int32{partition}, Err: kerr.NotLeaderForPartition, Count: -1}
	both := []kfake.Fault{f}
	if metadata {
		f.Keys, f.Err = []kmsg.Key{kmsg.Metadata}, kerr.LeaderNotAvailable
		both = append(both, f)
	}
	return w.cluster.Fault(both...).Remove
}

// One of three partitions has no leader: events of the others are published at their rate, and none
// of them becomes a dead letter, also when aggregates with a record on its way to the partition are
// still written to. When it has one again every event is published, once and in order.
func TestFlow_APartitionWithoutALeaderStopsNoOther(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	for name, tt := range map[string]struct {
		metadata bool
		every    time.Duration
		most     int // events in flight
	}{
		"as produce says":  {false, 10 * time.Millisecond, 20},
		"as metadata says": {true, 50 * time.Millisecond, 20},
		"seldom":           {false, time.Second, 40},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inBubble(t, func(t *testing.T) {
				w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.MaxInFlightRecords = tt.most })
				defer w.close()
				r, stop := w.run()
				all := []outbox.Event{relaytest.Event(100_000, 1, "OrderUpdated")}
				w.write(all[0]) // makes the topic
				time.Sleep(5 * time.Second)
				end := w.noLeader("OrderUpdated", 0, tt.metadata)
				seq := make(map[int]int64)
				for i := range 100 {
					aggregate := i
					if i%2 == 0 {
						aggregate = i % 10 // busy ones
					}
					seq[aggregate]++
					typ := "OrderUpdated"
					if i%5 == 0 {
						typ = "Other"
					}
					all = append(all, relaytest.Event(aggregate, seq[aggregate], typ))
					w.write(all[len(all)-1])
					time.Sleep(tt.every)
				}
				time.Sleep(4 * time.Second) // with the time to consume less than all attempts take
				healthy := slices.DeleteFunc(slices.Clone(all), func(e outbox.Event) bool { return partitionIn3(&e) == 0 })
				got := slices.DeleteFunc(w.consume("OrderUpdated", "Other"), func(d relaytest.Delivered) bool { return partitionIn3(&d.Event) == 0 })
				relaytest.CheckOrder(t, got, healthy)
				open := w.open()
				for _, e := range healthy {
					if _, dead := open[e.ID.UUID()]; dead {
						t.Errorf("event %d of a healthy partition is a dead letter", e.Sequence)
						break
					}
				}
				if n := relaytest.Count(r.metrics.Breaker.Changes.WithLabelValues(publish.BreakerOpen.String())); n != 0 {
					t.Errorf("the breaker opened %v times for one partition", n)
				}
				if s := r.Status(); s.InFlight > tt.most || !slices.ContainsFunc(s.Stalled, func(f publish.StalledTopic) bool { return f.Topic == "OrderUpdated" && f.Partition == 0 }) {
					t.Errorf("%d in flight, stalled %v; want partition 0", s.InFlight, s.Stalled)
				}
				end()
				time.Sleep(2 * time.Minute)
				if s := r.Status(); s.DeadLetters != 0 || s.InFlight != 0 || len(s.Problems) > 0 {
					t.Errorf("%d dead letters, %d in flight, problems %q after all is well", s.DeadLetters, s.InFlight, s.Problems)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
				relaytest.CheckOrder(t, w.consume("OrderUpdated", "Other"), all)
			})
		})
	}
}

// A relay is killed that has made dead letters behind a record which only its producer
// had: the next one publishes that record's event first.
func TestFlow_AKillKeepsTheOrderBehindAStalledRecord(t *testing.T) {
	t.Parallel()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) {
			c.MaxInFlightRecords = 12
		})
		defer w.close()
		var all []outbox.Event
		ids := []int{}
		for i := 0; len(ids) < 3; i++ {
			if e := relaytest.Event(i, 1, "OrderUpdated"); partitionIn3(&e) == 0 {
				ids = append(ids, i)
			}
		}
		var end func()
		go func() {
			all = append(all, relaytest.Event(100_000, 1, "OrderUpdated"))
			w.write(all[0])
			time.Sleep(5 * time.Second)
			end = w.noLeader("OrderUpdated", 0, false)
			for seq := range 10 {
				for _, a := range ids {
					all = append(all, relaytest.Event(a, int64(seq+1), "OrderUpdated"))
					w.write(all[len(all)-1])
				}
				time.Sleep(time.Second)
			}
		}()
		w.crashAfter(13 * time.Second) // before all attempts are used up
		if n := len(w.open()); n == 0 {
			t.Error("no dead letters: the test does not reach what it is for")
		}
		end()
		_, stop := w.run()
		time.Sleep(3 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		relaytest.CheckOrder(t, w.consume("OrderUpdated"), all)
	})
}

// A partition without a leader is the only one with events: the broker answers, so the
// breaker stays closed for others.
func TestFlow_OneSilentPartitionAloneOpensNoBreaker(t *testing.T) {
	t.Parallel()
	relaytest.Long(t)
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, scyllafake.Config{Tokens: 4}, nil)
		defer w.close()
		r, stop := w.run()
		all := []outbox.Event{relaytest.Event(100_000, 1, "OrderUpdated")}
		w.write(all[0]) // makes the topic
		time.Sleep(5 * time.Second)
		end := w.noLeader("OrderUpdated", 0, false)
		for i := 0; len(all) < 4; i++ {
			if e := relaytest.Event(i, 1, "OrderUpdated"); partitionIn3(&e) == 0 {
				all = append(all, e)
				w.write(e)
			}
		}
		time.Sleep(time.Minute)
		if n := relaytest.Count(r.metrics.Breaker.Changes.WithLabelValues(publish.BreakerOpen.String())); n != 0 {
			t.Errorf("the breaker opened %v times for one partition", n)
		}
		end()
		time.Sleep(2 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		relaytest.CheckOrder(t, w.consume("OrderUpdated"), all)
	})
}

// Partitions without leaders hold events of aggregates that are written to all the time, more than
// the relay keeps in flight. The other partitions proceed, whatever error the broker returns and
// whether the table has numbers or not: without them the events wait in the log. Then all are
// published, once and in order.
func TestFlow_BusyAggregatesOfPartitionsWithoutALeader(t *testing.T) {
	t.Parallel()
	for _, numbers := range []bool{true, false} {
		for _, tail := range []string{TailOn, TailOff} {
			for silent, metadata := range map[string][]bool{"produce": {false}, "metadata": {true}, "two": {false, true}} {
				t.Run(fmt.Sprintf("numbers %t, tail %s, %s", numbers, tail, silent), func(t *testing.T) {
					t.Parallel()
					inBubble(t, func(t *testing.T) {
						w := newWorld(t, scyllafake.Config{Tokens: 4}, func(c *Config) { c.MaxInFlightRecords, c.Tail = 60, tail })
						defer w.close()
						topic := "OrderUpdated"
						if !numbers {
							topic = "outbox.event.order"
							debezium(&w.cfg)
							w.ownTable("aggregateid, id", " WITH cdc = {'enabled': true}")
						}
						want := make(map[string][]string) // ids by aggregate
						healthy := 0                      // events of other partitions
						write := func(n int) {
							for aggregate := range 30 {
								e := relaytest.Event(aggregate, int64(n), topic)
								if numbers {
									w.write(e)
								} else {
									e.ID, e.AggregateID = outbox.IDFromUUID(gocql.TimeUUID()), outbox.IDFromText(fmt.Sprint("order-", aggregate))
									w.exec("INSERT INTO shop.events (aggregateid, id, aggregatetype, type, payload) VALUES (?, ?, 'order', 'Placed', '{}')", e.AggregateID, e.ID)
								}
								want[e.AggregateID.String()] = append(want[e.AggregateID.String()], e.ID.String())
								if int(partitionIn3(&e)) >= len(metadata) {
									healthy++
								}
								time.Sleep(20 * time.Millisecond)
							}
						}
						_, stop := w.run()
						write(1)
						time.Sleep(10 * time.Second)
						var ends []func()
						for i, m := range metadata {
							ends = append(ends, w.noLeader(topic, int32(i), m))
						}
						for n := 2; n <= 20; n++ {
							write(n)
						}
						time.Sleep(30 * time.Second)
						got := w.consume(topic)
						if n := len(slices.DeleteFunc(got, func(d relaytest.Delivered) bool { return int(d.Partition) < len(metadata) })); n != healthy {
							t.Errorf("%d of %d events of the other partitions are published", n, healthy)
						}
						for _, end := range ends {
							end()
						}
						time.Sleep(5 * time.Minute)
						if err := stop(); err != nil {
							t.Error(err)
						}
						published := make(map[string][]string)
						for _, d := range w.consume(topic) {
							published[d.AggregateID.String()] = append(published[d.AggregateID.String()], d.ID.String())
						}
						for id, events := range want {
							if !slices.Equal(published[id], events) {
								t.Errorf("aggregate %s has the events %v in the topic, want %v", id, published[id], events)
							}
						}
					})
				})
			}
		}
	}
}
