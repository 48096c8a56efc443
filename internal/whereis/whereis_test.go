package whereis

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

func TestFinder_FindsTheRecordOfAnEvent(t *testing.T) {
	t.Parallel()
	broker := world.StartBroker(t, kfake.SeedTopics(5, "t"))
	client := world.Connect(t, broker, kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	now := time.Now()
	want := map[gocql.UUID]*kgo.Record{}
	for i := range 50 {
		e := outbox.Event{ID: outbox.NewID(), AggregateID: outbox.NewID(), Sequence: 1, AggregateType: "message", Type: "t", CreatedAt: now}
		if i%2 == 0 {
			e.Headers = map[string]string{outbox.HeaderPartitionKey: "key-" + strconv.Itoa(i)}
		}
		r := &kgo.Record{Topic: "t", Key: e.Key(), Headers: outbox.AppendHeaders[kgo.RecordHeader](nil, &e, "/s")}
		if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
		want[e.ID.UUID()] = r
	}
	aborted := outbox.NewID()
	abort(t, broker, &kgo.Record{Topic: "t", Key: []byte("k"), Headers: []kgo.RecordHeader{{Key: outbox.HeaderID, Value: []byte(aborted.String())}}})
	f := New(kgo.SeedBrokers(broker.ListenAddrs()...))
	for id, r := range want {
		if got, err := f.Find(t.Context(), "t", r.Key, id, now); err != nil || got == nil || got.Partition != r.Partition || got.Offset != r.Offset {
			t.Errorf("Find() = %+v, %v, want it at %d of partition %d", got, err, r.Offset, r.Partition)
		}
		if got, err := f.Find(t.Context(), "t", r.Key, outbox.NewID().UUID(), now); err != nil || got != nil {
			t.Errorf("Find() of an event that is not there = %+v, %v", got, err)
		}
		if got, err := f.Find(t.Context(), "t", r.Key, id, now.Add(time.Hour)); err != nil || got != nil {
			t.Errorf("Find() among later records = %+v, %v", got, err)
		}
	}
	if got, err := f.Find(t.Context(), "none", []byte("k"), outbox.NewID().UUID(), now); err != nil || got != nil {
		t.Errorf("Find() in a topic that is not there = %+v, %v", got, err)
	}
	if got, err := f.Find(t.Context(), "t", []byte("k"), aborted.UUID(), now); err != nil || got != nil {
		t.Errorf("Find() of an event whose transaction was aborted = %+v, %v", got, err)
	}
	broker.Close()
	if _, err := f.Find(t.Context(), "t", []byte("k"), outbox.NewID().UUID(), now); err == nil {
		t.Error("Find() without a broker says that it knows")
	}
}

// abort writes a record in a transaction that is aborted.
func abort(t *testing.T, broker *kfake.Cluster, r *kgo.Record) {
	t.Helper()
	producer := world.Connect(t, broker, kgo.TransactionalID("test"), kgo.RecordPartitioner(kgo.StickyKeyPartitioner(nil)))
	err := producer.BeginTransaction()
	if err == nil {
		err = producer.ProduceSync(t.Context(), r).FirstErr()
	}
	if err = errors.Join(err, producer.EndTransaction(t.Context(), kgo.TryAbort)); err != nil {
		t.Fatal(err)
	}
}
