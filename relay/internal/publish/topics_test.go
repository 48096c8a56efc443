package publish

import (
	"context"
	"encoding/binary"
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

	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
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
