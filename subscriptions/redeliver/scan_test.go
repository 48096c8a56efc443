package redeliver

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/topicreader"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// Reading fails, and names the partition, if its records are deleted after its end was read.
func TestScan_DeletedRecords(t *testing.T) {
	t.Parallel()
	broker := world.StartBroker(t, kfake.SeedTopics(2, "things"))
	client := world.Connect(t, broker, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	produce := func(number int32) error {
		return client.ProduceSync(t.Context(), &kgo.Record{Topic: "things", Partition: number, Value: []byte("x")}).FirstErr()
	}
	for range 3 {
		if err := errors.Join(produce(0), produce(1)); err != nil {
			t.Fatal(err)
		}
	}
	r := &Redelivery{
		Config:  Config{Kafka: world.Kafka{kgo.SeedBrokers(broker.ListenAddrs()...)}.Client},
		options: options{stall: time.Hour},
	}
	spans := topicreader.Spans{"things": {0: {End: 3}, 1: {End: 3}}}
	var got []part
	read := func(rec *kgo.Record) error {
		got = append(got, part{rec.Topic, rec.Partition})
		return nil
	}
	if err := r.scan(t.Context(), spans, read); err != nil || len(got) != 6 {
		t.Fatalf("read are %v, %v", got, err)
	}
	var upTo kadm.Offsets
	upTo.Add(kadm.Offset{Topic: "things", Partition: 0, At: 3})
	if _, err := kadm.NewClient(client).DeleteRecords(t.Context(), upTo); err != nil {
		t.Fatal(err)
	}
	err := r.scan(t.Context(), spans, read)
	if !errors.Is(err, jobs.ErrTopics) || !strings.Contains(err.Error(), "things/0 from offset 0 to 3") || strings.Contains(err.Error(), "things/1") {
		t.Errorf("with deleted records the error is %v", err)
	}
}
