package redeliver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// Reading fails if the rest of a partition is deleted after its end was read, also while another
// partition, which has reached its end, receives records.
func TestScan_DeletedRecords(t *testing.T) {
	t.Parallel()
	broker := world.StartBroker(t, kfake.SeedTopics(2, "things"))
	client := world.Connect(t, broker, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	produce := func(ctx context.Context, number int32) error {
		return client.ProduceSync(ctx, &kgo.Record{Topic: "things", Partition: number, Value: []byte("x")}).FirstErr()
	}
	for range 3 {
		if err := errors.Join(produce(t.Context(), 0), produce(t.Context(), 1)); err != nil {
			t.Fatal(err)
		}
	}
	r := &Redelivery{
		Config:  Config{Kafka: world.Kafka{kgo.SeedBrokers(broker.ListenAddrs()...)}.Client},
		options: options{stall: time.Hour},
		parts:   map[part]*partition{{"things", 0}: {end: 3}, {"things", 1}: {end: 3}},
	}
	deleted := false
	var got []part
	read := func(rec *kgo.Record) error {
		if got = append(got, part{rec.Topic, rec.Partition}); deleted && len(got) == 3 {
			r.stall = time.Millisecond // partition 1 is at its end
		}
		return nil
	}
	if err := r.scan(t.Context(), read); err != nil || len(got) != 6 {
		t.Fatalf("read are %v, %v", got, err)
	}
	var upTo kadm.Offsets
	upTo.Add(kadm.Offset{Topic: "things", Partition: 0, At: 3})
	if _, err := kadm.NewClient(client).DeleteRecords(t.Context(), upTo); err != nil {
		t.Fatal(err)
	}
	producing, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for producing.Err() == nil {
			_ = produce(producing, 1) // fails at the end only
		}
	}()
	defer func() { cancel(); <-ended }()
	got, deleted = nil, true
	err := r.scan(t.Context(), read)
	if err == nil || !strings.Contains(err.Error(), "things/0 from offset 0 to 3") || strings.Contains(err.Error(), "things/1") {
		t.Errorf("with deleted records the error is %v", err)
	}
	if !slices.Equal(got, []part{{"things", 1}, {"things", 1}, {"things", 1}}) {
		t.Errorf("read are %v", got)
	}
}
