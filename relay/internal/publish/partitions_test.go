package publish

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/logtest"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/topics"
)

// Added partitions move keys, which is logged once.
func TestPublisher_ReportsAddedPartitions(t *testing.T) {
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
			if _, err := b.publisher.producer.Catalog.Admin.CreatePartitions(t.Context(), 4, "OrderUpdated"); err != nil {
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

// Events of one aggregate have different record keys, as when an order moves to another customer.
// Each is in the partition of its key, and they are published in order.
func TestPublisher_SendsEachRecordToThePartitionOfItsKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, nil)
		defer b.close()
		const topic = "OrderUpdated"
		var all []outbox.Event
		seq := int64(0)
		for i := range 20 {
			for range 1 + i%4*3 { // also one after the other
				seq++
				e := relaytest.Event(1, seq, topic)
				e.Headers = map[string]string{outbox.HeaderPartitionKey: fmt.Sprint("customer-", i)}
				all = append(all, e)
				b.submit(e, nil)
			}
		}
		b.drain(time.Minute)
		published := make(map[gocql.UUID]relaytest.Delivered)
		for _, d := range b.consume(topic) {
			published[d.ID.UUID()] = d
			if want := topics.KeyPartitioner.Partition(&kgo.Record{Key: d.Key()}, 3); int32(want) != d.Partition {
				t.Errorf("event %d is in partition %d, want %d, that of its key", d.Sequence, d.Partition, want)
			}
		}
		if len(published) != len(all) {
			t.Errorf("%d events are in the topic, want %d", len(published), len(all))
		}
		for i := range all[1:] {
			if a, b := published[all[i].ID.UUID()], published[all[i+1].ID.UUID()]; b.At.Before(a.At) || a.Partition == b.Partition && b.Offset < a.Offset {
				t.Errorf("event %d is published before event %d", b.Sequence, a.Sequence)
			}
		}
	})
}
