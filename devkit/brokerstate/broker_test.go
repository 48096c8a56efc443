package brokerstate

import (
	"encoding/binary"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

const topic = "Order-Created"

// broker is a kfake on a data directory, with a client of its own.
type broker struct {
	t      *testing.T
	dir    string
	net    *kfake.VirtualNetwork
	client *kgo.Client
	stop   func()
}

func start(t *testing.T, dir string) *broker {
	t.Helper()
	b := &broker{t: t, dir: dir, net: new(kfake.VirtualNetwork)}
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(b.net.Listen),
		kfake.SeedTopics(1, topic), kfake.DataDir(dir))
	if err != nil {
		t.Fatalf("NewCluster() error = %v", err)
	}
	b.stop = cluster.Close
	t.Cleanup(cluster.Close)
	b.client = b.newClient(kgo.MaxVersions(kversion.V3_0_0())) // produces by topic name
	return b
}

func (b *broker) newClient(opts ...kgo.Opt) *kgo.Client {
	b.t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers("127.0.0.1:9092"), kgo.Dialer(b.net.DialContext)}, opts...)...)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(client.Close)
	return client
}

// image returns a copy of the data directory as after a kill of the broker now: it
// writes each file in one step.
func (b *broker) image() string {
	b.t.Helper()
	dir := filepath.Join(b.t.TempDir(), "kafka")
	if err := os.CopyFS(dir, os.DirFS(b.dir)); err != nil {
		b.t.Fatal(err)
	}
	return dir
}

// restartKilled starts a broker on the data of this one as after a kill now, and expects that
// many rebuilt windows.
func (b *broker) restartKilled(want int) *broker {
	b.t.Helper()
	dir := b.image()
	if n, err := Recover(dir); n != want || err != nil {
		b.t.Fatalf("Recover() = %d, %v, want %d, nil", n, err, want)
	}
	return start(b.t, dir)
}

// newPID has the broker give out a producer id.
func (b *broker) newPID() int64 {
	b.t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	resp, err := req.RequestWith(b.t.Context(), b.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		b.t.Fatalf("InitProducerID: %v", err)
	}
	return resp.ProducerID
}

// send sends one batch and returns the offset in the answer and its error.
func (b *broker) send(pid int64, epoch int16, sequence, records int32) (int64, error) {
	b.t.Helper()
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 5000
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Records = batch(pid, epoch, sequence, records)
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(b.t.Context(), b.client)
	if err != nil {
		b.t.Fatalf("Produce: %v", err)
	}
	p := resp.Topics[0].Partitions[0]
	return p.BaseOffset, kerr.ErrorForCode(p.ErrorCode)
}

// mustSend sends one batch that is to be at the offset.
func (b *broker) mustSend(pid int64, epoch int16, sequence, records int32, want int64) {
	b.t.Helper()
	if got, err := b.send(pid, epoch, sequence, records); got != want || err != nil {
		b.t.Errorf("send(sequence %d) = offset %d, %v, want offset %d", sequence, got, err, want)
	}
}

// recreate deletes the topic and makes it again.
func (b *broker) recreate() {
	b.t.Helper()
	del := kmsg.NewPtrDeleteTopicsRequest()
	dt := kmsg.NewDeleteTopicsRequestTopic()
	dt.Topic = kmsg.StringPtr(topic)
	del.Topics = append(del.Topics, dt)
	if _, err := del.RequestWith(b.t.Context(), b.client); err != nil {
		b.t.Fatalf("DeleteTopics: %v", err)
	}
	create := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, 1, 1
	create.Topics = append(create.Topics, rt)
	resp, err := create.RequestWith(b.t.Context(), b.client)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if err != nil {
		b.t.Fatalf("CreateTopics: %v", err)
	}
}

// end is the offset after the last record of the topic.
func (b *broker) end() int64 {
	b.t.Helper()
	req := kmsg.NewPtrListOffsetsRequest()
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Timestamp = -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(b.t.Context(), b.client)
	if err != nil {
		b.t.Fatalf("ListOffsets: %v", err)
	}
	p := resp.Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
		b.t.Fatalf("ListOffsets: %v", err)
	}
	return p.Offset
}

func (b *broker) wantEnd(want int64) {
	b.t.Helper()
	if got := b.end(); got != want {
		b.t.Errorf("the topic holds %d records, want %d", got, want)
	}
}

// batch encodes an idempotent producer's record batch.
func batch(pid int64, epoch int16, sequence, records int32) []byte {
	var data []byte
	for i := range records {
		r := kmsg.Record{OffsetDelta: i, Value: []byte("order")}
		r.Length = int32(len(r.AppendTo(nil)) - 1) // its own varint is one byte
		data = r.AppendTo(data)
	}
	rb := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, LastOffsetDelta: records - 1,
		ProducerID: pid, ProducerEpoch: epoch, FirstSequence: sequence, NumRecords: records, Records: data,
	}
	rb.Length = int32(len(rb.AppendTo(nil)) - lengthEnd)
	raw := rb.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], castagnoli))
	return raw
}
