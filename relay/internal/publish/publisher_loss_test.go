package publish

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// A leader that does not have the acknowledged records of its predecessor has lost them: the
// partition ends before them, or has others in their place.
func TestPublisher_ReportsRecordsThatTheBrokerLost(t *testing.T) {
	t.Parallel()
	for name, others := range map[string]int{"the partition ends before them": 0, "other records are in their place": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, func(c *Config) { c.Partitions = 1 }, world.WithoutTopicIDs().Options()...)
				defer b.close()
				b.submit(relaytest.Event(1, 1, "OrderUpdated"), nil)
				b.drain(time.Minute)
				admin := b.publisher.producer.Catalog.Admin
				if _, err := admin.DeleteTopics(t.Context(), "OrderUpdated"); err != nil { // as a leader without the records
					t.Fatal(err)
				}
				if _, err := admin.CreateTopic(t.Context(), 1, 1, nil, "OrderUpdated"); err != nil {
					t.Fatal(err)
				}
				client, _ := b.publisher.Kafka()
				for range others {
					if err := client.ProduceSync(t.Context(), &kgo.Record{Topic: "OrderUpdated", Value: []byte("x")}).FirstErr(); err != nil {
						t.Fatal(err)
					}
				}
				b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.OutOfOrderSequenceNumber})
				b.submit(relaytest.Event(1, 2, "OrderUpdated"), nil)
				b.drain(time.Minute)
				if n := relaytest.Count(b.publisher.Metrics.dataLoss); n != 1 {
					t.Errorf("outbox_relay_broker_data_loss_total = %v, want 1", n)
				}
			})
		})
	}
}

// A broker that has every acknowledged record lost none, whatever it answers about the sequence
// numbers of the next one. That one is published once, by another producer id.
func TestPublisher_ReportsNoLossThatDidNotHappen(t *testing.T) {
	t.Parallel()
	for _, err := range []*kerr.Error{kerr.OutOfOrderSequenceNumber, kerr.UnknownProducerID, kerr.InvalidProducerEpoch} {
		t.Run(err.Message, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := setup(t, nil)
				defer b.close()
				all := relaytest.Events(5, 3, "OrderUpdated")
				for i, e := range all {
					if i%4 == 3 {
						b.cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: err})
					}
					b.submit(e, nil)
					if i%2 == 0 {
						b.drain(time.Minute)
					}
				}
				b.drain(time.Minute)
				if n := relaytest.Count(b.publisher.Metrics.dataLoss); n != 0 {
					t.Errorf("outbox_relay_broker_data_loss_total = %v, want 0", n)
				}
				relaytest.CheckOrder(t, b.consume("OrderUpdated"), all)
			})
		})
	}
}
