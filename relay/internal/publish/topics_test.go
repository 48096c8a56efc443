package publish

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/topics"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// A deleted topic is created again for the next event.
func TestPublisher_MakesADeletedTopicAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		b.submit(relaytest.Event(1, 1, "OrderCreated"), nil)
		b.drain(time.Minute)
		if _, err := b.publisher.producer.Catalog.Admin.DeleteTopics(t.Context(), "OrderCreated"); err != nil {
			t.Fatal(err)
		}
		late := relaytest.Event(2, 1, "OrderCreated")
		b.submit(late, nil)
		b.drain(10 * time.Minute)
		if got := b.consume("OrderCreated"); len(got) != 1 || got[0].Event.ID != late.ID {
			t.Errorf("the new topic has %d records, want the event submitted after the deletion", len(got))
		}
		if n := relaytest.Count(b.publisher.Metrics.recreated.WithLabelValues("OrderCreated")); n != 1 {
			t.Errorf("outbox_relay_topics_recreated_total = %v, want 1", n)
		}
	})
}

// A topic that an earlier process published to was deleted: it counts as created again.
func TestPublisher_ReportsATopicThatWasDeletedBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		b.publisher.ExpectTopics([]string{"OrderCreated"})
		b.submit(relaytest.Event(1, 1, "OrderCreated"), nil)
		b.submit(relaytest.Event(2, 1, "OrderUpdated"), nil)
		b.drain(time.Minute)
		for topic, want := range map[string]float64{"OrderCreated": 1, "OrderUpdated": 0} {
			if n := relaytest.Count(b.publisher.Metrics.recreated.WithLabelValues(topic)); n != want {
				t.Errorf("outbox_relay_topics_recreated_total of %s = %v, want %v", topic, n, want)
			}
		}
	})
}

// Another process creates a deleted topic again before the relay notices the deletion.
func TestPublisher_ContinuesInARecreatedTopic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		b.submit(relaytest.Event(1, 1, "OrderCreated"), nil)
		b.drain(time.Minute)
		admin := b.publisher.producer.Catalog.Admin
		if _, err := admin.DeleteTopics(t.Context(), "OrderCreated"); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.CreateTopic(t.Context(), 3, 1, nil, "OrderCreated"); err != nil {
			t.Fatal(err)
		}
		late := relaytest.Event(2, 1, "OrderCreated")
		b.submit(late, nil)
		b.drain(10 * time.Minute)
		if got := b.consume("OrderCreated"); len(got) != 1 || got[0].Event.ID != late.ID {
			t.Errorf("the new topic has %d records, want the event submitted after the deletion", len(got))
		}
	})
}

// lateConn is a connection that delays responses to produce requests.
type lateConn struct {
	net.Conn
	of       bool // this broker is delayed
	late     *atomic.Bool
	produces atomic.Bool
}

func (c *lateConn) Write(p []byte) (int, error) {
	if len(p) > 6 && binary.BigEndian.Uint16(p[4:]) == uint16(kmsg.Produce) {
		c.produces.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *lateConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	for c.of && c.produces.Load() && c.late.Load() {
		time.Sleep(10 * time.Millisecond)
	}
	return n, err
}

// A broker that temporarily does not know a partition returns the error of a deleted
// topic. The topic exists, so records in progress to its other partitions stay in the
// producer: the broker may have them.
func TestPublisher_ABrokerThatDoesNotKnowAPartitionCostsNoDuplicate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var late atomic.Bool
		wire := new(kfake.VirtualNetwork)
		b := setup(t, func(c *Config) {
			c.AttemptTimeout = time.Minute // the breaker stays closed
			c.Kafka = []kgo.Opt{kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
				conn, err := wire.DialContext(ctx, network, addr)
				return &lateConn{Conn: conn, late: &late, of: strings.HasSuffix(addr, ":9093")}, err
			})}
		}, kfake.NumBrokers(2), kfake.Ports(9092, 9093), kfake.ListenFn(wire.Listen))
		b.net = wire
		defer b.close()
		for a := range 10 { // creates the topic
			b.submit(relaytest.Event(a, 1, "OrderCreated"), nil)
		}
		b.drain(time.Minute)
		on := map[int32]int{} // an aggregate of each partition
		for _, d := range b.consume("OrderCreated") {
			for a := range 10 {
				if d.Event.ID == relaytest.Event(a, 1, "OrderCreated").ID {
					on[d.Partition] = a
				}
			}
		}
		if len(on) < 2 {
			t.Fatalf("the aggregates are on %d partitions, want two", len(on))
		}
		for p, node := range []int32{0, 1} {
			if err := b.cluster.MoveTopicPartition("OrderCreated", int32(p), node); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10 * time.Minute) // the producer refreshes its metadata
		unknown := b.cluster.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.Produce}, Topic: "OrderCreated", Partitions: []int32{0}, Err: kerr.UnknownTopicOrPartition, Count: -1,
		})
		late.Store(true)
		b.submit(relaytest.Event(on[1], 2, "OrderCreated"), nil)
		b.submit(relaytest.Event(on[0], 2, "OrderCreated"), nil)
		time.Sleep(10 * time.Second)
		unknown.Remove()
		late.Store(false)
		b.drain(10 * time.Minute)
		seen := map[string]int{}
		for _, d := range b.consume("OrderCreated") {
			seen[d.Event.ID.String()]++
		}
		for id, n := range seen {
			if n > 1 {
				t.Errorf("event %s is in the topic %d times, want once", id, n)
			}
		}
		if len(seen) != 12 {
			t.Errorf("%d events are in the topic, want 12", len(seen))
		}
	})
}

// Somebody deletes a topic and creates it again while the relay publishes to it. Every event that
// counts as published is in the topic, whatever the broker and its client know of topic ids: of
// events published before the client noticed, and of the first ones after it. The new topic may
// have more partitions, or fewer, and the relay creates it where nobody else does.
func TestPublisher_WritesEveryEventToARecreatedTopic(t *testing.T) {
	t.Parallel()
	world.EachBroker(t, func(t *testing.T, v *world.BrokerVersion) {
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, func(c *Config) { c.Partitions = 6 }, v.Options()...)
			defer b.close()
			admin := b.publisher.producer.Catalog.Admin
			b.submit(relaytest.Event(1, 1, "OrderCreated"), nil) // one partition has records
			b.drain(time.Minute)
			n := 1
			for i, partitions := range []int32{3, 3, 5, 2, 0, 4, 0, 7, 1} {
				if _, err := admin.DeleteTopics(t.Context(), "OrderCreated"); err != nil {
					t.Fatal(err)
				}
				if partitions > 0 {
					if _, err := admin.CreateTopic(t.Context(), partitions, 1, nil, "OrderCreated"); err != nil {
						t.Fatal(err)
					}
				}
				var all []outbox.Event
				settled := 0
				send := func(events int) { // each with a request of its own
					for range events {
						n++
						all = append(all, relaytest.Event(n, 1, "OrderCreated"))
						b.submit(all[len(all)-1], func() { settled++ })
						b.drain(10 * time.Minute)
					}
				}
				if i%2 == 0 {
					send(6) // before the client refreshes its metadata
				}
				time.Sleep(6 * time.Minute) // a refresh
				send(13)
				relaytest.CheckOrder(t, b.consume("OrderCreated"), all)
				if settled != len(all) {
					t.Errorf("%d of %d events are settled", settled, len(all))
				}
			}
		})
	})
}

// A broker whose metadata are behind leads a partition and does not know the id of its topic,
// for some seconds. Nothing was deleted, and the other partitions take records. The epoch of the
// producer was increased before. Each event that counts as published is in its topic.
func TestPublisher_WritesEveryEventWhileABrokerDoesNotKnowATopic(t *testing.T) {
	t.Parallel()
	for _, err := range []*kerr.Error{kerr.NotLeaderForPartition, kerr.UnknownTopicID, kerr.UnknownTopicOrPartition} {
		for _, times := range []int{5, 30} {
			t.Run(fmt.Sprint(err.Message, " x", times), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					b := setup(t, nil)
					defer b.close()
					var all []outbox.Event
					n, settled := 0, 0
					submit := func(topic string, part int) { // an event of a new aggregate for the partition
						for ; ; n++ {
							e := relaytest.Event(n, 1, topic)
							if topics.KeyPartitioner.Partition(&kgo.Record{Key: e.Key()}, 3) == part {
								n++
								all = append(all, e)
								b.submit(e, func() { settled++ })
								return
							}
						}
					}
					for part := range 3 {
						submit("A", part)
						submit("B", part)
					}
					b.drain(time.Minute)
					b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "A", Partitions: []int32{0}, Err: kerr.UnknownTopicOrPartition, Count: 5})
					b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: "B", Partitions: []int32{0}, Err: err, Count: times})
					submit("A", 0)
					time.Sleep(500 * time.Millisecond)
					submit("B", 0)
					for range 60 {
						submit("B", 2) // a healthy partition, five events a second
						time.Sleep(200 * time.Millisecond)
					}
					b.drain(20 * time.Minute)
					relaytest.CheckOrder(t, b.consume("A", "B"), all)
					if settled != len(all) {
						t.Errorf("%d of %d events are settled", settled, len(all))
					}
				})
			})
		}
	}
}

// A topic is looked up at a broker that does not know it, although it exists, and again while
// records of it are in flight.
func TestPublisher_LooksATopicUpAgainWithRecordsInFlight(t *testing.T) {
	t.Parallel()
	for _, unknown := range []int{1, 6} {
		t.Run(fmt.Sprint("unknown x", unknown), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, nil)
				defer b.close()
				const topic = "OrderUpdated"
				if _, err := b.publisher.producer.Catalog.Admin.CreateTopic(t.Context(), 3, 1, nil, topic); err != nil { // by another instance
					t.Fatal(err)
				}
				b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Metadata}, Topic: topic, Err: kerr.UnknownTopicOrPartition, Count: unknown})
				away := b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Partitions: []int32{0}, Err: kerr.NotLeaderForPartition, Count: -1})
				b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Partitions: []int32{1}, Err: kerr.UnknownTopicOrPartition, Count: 6})
				var all []outbox.Event
				for i := range 20 {
					all = append(all, relaytest.Event(i, 1, topic))
					b.submit(all[i], nil)
				}
				time.Sleep(10 * time.Second)
				away.Remove()
				b.drain(5 * time.Minute)
				relaytest.CheckOrder(t, b.consume(topic), all)
			})
		})
	}
}

// A broker refuses producer ids, as one of Redpanda in recovery mode does, or one that does not
// know the topic yet that the relay may write to. Events are published when it grants one.
func TestPublisher_GetsAnotherProducerIDAfterARefusedOne(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err   *kerr.Error
		lasts time.Duration
	}{
		{kerr.PolicyViolation, time.Minute},
		{kerr.ClusterAuthorizationFailed, 3 * time.Second},
		{kerr.UnknownServerError, time.Minute},
	} {
		t.Run(tt.err.Message, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, nil)
				defer b.close()
				fault := b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: tt.err, Count: -1})
				all := relaytest.Events(4, 3, "OrderCreated")
				for _, e := range all {
					b.submit(e, nil)
				}
				time.Sleep(tt.lasts)
				fault.Remove()
				b.drain(2 * time.Minute)
				relaytest.CheckOrder(t, b.consume("OrderCreated"), all)
				if len(b.fatal) > 0 {
					t.Errorf("the relay ends: %v", <-b.fatal)
				}
			})
		})
	}
	t.Run("for ever", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			b := setup(t, nil)
			defer b.close()
			b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.InitProducerID}, Err: kerr.ClusterAuthorizationFailed, Count: -1})
			b.submit(relaytest.Event(1, 1, "OrderCreated"), nil)
			time.Sleep(time.Minute)
			if len(b.fatal) == 0 {
				t.Error("the relay has no right to a producer id and does not end")
			}
		})
	})
}

// A Redpanda broker in recovery mode refuses records with POLICY_VIOLATION: the events wait, and
// none needs an operator.
func TestPublisher_WaitsForABrokerInRecoveryMode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		all := relaytest.Events(10, 4, "OrderCreated")
		b.submit(all[0], nil)
		b.drain(time.Minute)
		fault := b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.PolicyViolation, Count: -1})
		for _, e := range all[1:] {
			b.submit(e, nil)
		}
		time.Sleep(time.Minute)
		if n := len(b.publisher.Holds()); n > 0 {
			t.Errorf("%d aggregates are held, want none", n)
		}
		fault.Remove()
		b.drain(5 * time.Minute)
		relaytest.CheckOrder(t, b.consume("OrderCreated"), all)
	})
}
