package publish

import (
	"encoding/binary"
	"hash/crc32"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// client returns a client of another program, which the caller closes.
func (b *fixture) client() *kgo.Client {
	b.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(b.cfg.Brokers...)}, b.cfg.Kafka...)...)
	if err != nil {
		b.t.Fatal(err)
	}
	return cl
}

// appendUndecodable appends a batch of another producer, which no consumer can decompress, to
// each partition of a topic.
func (b *fixture) appendUndecodable(topic string) {
	b.t.Helper()
	cl := b.client()
	defer cl.Close()
	now := time.Now().UnixMilli()
	batch := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, Attributes: int16(kgo.CodecGzip), FirstTimestamp: now, MaxTimestamp: now,
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: 1, Records: []byte("not compressed by gzip"),
	}
	raw := batch.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	topics, err := kadm.NewClient(cl).ListTopics(b.t.Context(), topic)
	if err != nil {
		b.t.Fatal(err)
	}
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10_000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = topic, topics[topic].ID
	for n := range topics[topic].Partitions {
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition, rp.Records = n, raw
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(b.t.Context(), cl)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, p := range resp.Topics[0].Partitions {
		if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
			b.t.Fatalf("append a batch to partition %d: %v", p.Partition, err)
		}
	}
}

// A batch of another producer that cannot be decompressed hides no record from the search for
// those whose answer was lost.
func TestPublisher_FindsRecordsBehindABatchThatCannotBeDecoded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var loss answerLoss
		wire := new(kfake.VirtualNetwork)
		b := setup(t, func(c *Config) { c.Kafka = []kgo.Opt{loss.dialer(wire.DialContext)} }, kfake.ListenFn(wire.Listen))
		defer b.close()
		all := []outbox.Event{relaytest.Event(1, 1, "OrderUpdated"), relaytest.Event(1, 2, "OrderUpdated"), relaytest.Event(1, 3, "OrderUpdated")}
		settled := 0
		b.submit(all[0], func() { settled++ })
		b.drain(time.Minute)
		b.appendUndecodable("OrderUpdated")
		loss.next.Store(true)
		b.cluster.Fault(kfake.Fault{
			Keys: []kmsg.Key{kmsg.Produce}, Topic: "OrderUpdated", Err: kerr.UnknownServerError, Count: 3,
			When: func(kmsg.Request) bool { return loss.lost.Load() },
		})
		b.submit(all[1], func() { settled++ })
		time.Sleep(5 * time.Minute)
		b.submit(all[2], func() { settled++ })
		b.drain(10 * time.Minute)
		cl := b.client()
		defer cl.Close()
		ends, err := kadm.NewClient(cl).ListEndOffsets(t.Context(), "OrderUpdated")
		if err != nil {
			t.Fatal(err)
		}
		records, foreign := 0, 0
		ends.Each(func(o kadm.ListedOffset) { records, foreign = records+int(o.Offset), foreign+1 })
		if settled != len(all) || records != len(all)+foreign {
			t.Errorf("%d of %d events are settled, with %d records of the relay; want each once", settled, len(all), records-foreign)
		}
	})
}
