package publish

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/logtest"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/topics"
)

// Added partitions move keys, which is logged once.
func TestPublisher_SaysThatPartitionsWereAdded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var said logtest.Buffer
		b := setup(t, func(c *Config) {
			c.Kafka = append(c.Kafka, kgo.MetadataMaxAge(time.Second), kgo.MetadataMinAge(100*time.Millisecond))
			c.Logger = slog.New(slog.NewTextHandler(&said, nil))
		})
		defer b.close()
		all := append(relaytest.Events(10, 3, "OrderUpdated"), relaytest.Events(10, 3, "OrderCreated")...)
		for i, e := range all {
			b.submit(e, nil)
			b.drain(time.Minute)
			if i != 5 {
				continue
			}
			if _, err := b.publisher.topics.Admin.CreatePartitions(t.Context(), 4, "OrderUpdated"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second) // the producer refreshes its metadata
			if said := said.String(); strings.Contains(said, "partitions") {
				t.Errorf("logged before a record was sent to them:\n%s", said)
			}
		}
		if s := said.String(); strings.Count(s, "another number of partitions") != 1 || !strings.Contains(s, "topic=OrderUpdated before=3 partitions=7") {
			t.Errorf("want one line with the topic and both numbers:\n%s", s)
		}
	})
}

// Records are not sent to a gated partition, however many partitions the topic has when
// they are compared and when they are sent.
func TestPartitionCounts_Gates(t *testing.T) {
	t.Parallel()
	c := topics.Partitions{Log: slog.New(slog.DiscardHandler)}
	c.Gate("OrderUpdated", 1, 3)
	c.Gate("OrderCreated", -1, 0)
	c.Gate("OrderCreated", -1, 3)
	in := func(key []byte, n int) int { return topics.KeyPartitioner.Partition(&kgo.Record{Key: key}, n) }
	later := partitioner(&c).ForTopic("OrderUpdated")
	var turns, kept int
	for i := range 200 {
		e := relaytest.Event(i, 1, "OrderUpdated")
		if got, want := c.Gated("OrderUpdated", e.Key()), in(e.Key(), 3) == 1; got != want {
			t.Fatalf("gated(%s) = %t, want %t", e.Key(), got, want)
		}
		if !c.Gated("OrderCreated", e.Key()) || c.Gated("OrderCancelled", e.Key()) {
			t.Fatal("gated() is false for a topic whose lookup failed, or true for another one")
		}
		l := newLane(e.AggregateID, dedup.Line{})
		p := later.Partition(&kgo.Record{Key: e.Key(), Context: &l.ctx}, 7)
		if gone := in(e.Key(), 7) == 1; gone != (p == turnedAway) || gone != l.turned.Load() {
			t.Fatalf("a record of partition %d of 7 is sent to %d", in(e.Key(), 7), p)
		} else if gone {
			turns++
		}
		c.Saw("OrderUpdated", 3)
	}
	c.Saw("OrderUpdated", 7)
	for i := range 200 {
		e := relaytest.Event(i, 1, "OrderUpdated")
		want := in(e.Key(), 3) == 1 || in(e.Key(), 7) == 1
		if got := c.Gated("OrderUpdated", e.Key()); got != want {
			t.Fatalf("gated(%s) = %t after partitions were added, want %t", e.Key(), got, want)
		}
		if want && in(e.Key(), 7) != 1 {
			kept++
		}
	}
	if turns == 0 || kept == 0 {
		t.Errorf("%d keys moved to the gated partition and %d from it, want some", turns, kept)
	}
}
