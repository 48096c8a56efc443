package topicreader_test

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/internal/topicreader"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// broker is a broker in memory with a client that produces to chosen partitions.
type broker struct {
	*kfake.Cluster
	t      *testing.T
	client *kgo.Client
}

// start runs a broker with topic A of two partitions.
func start(t *testing.T, opts ...kfake.Opt) *broker {
	t.Helper()
	b := &broker{Cluster: world.StartBroker(t, append([]kfake.Opt{kfake.SeedTopics(2, "A")}, opts...)...), t: t}
	b.client = world.Connect(t, b.Cluster, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(10*time.Millisecond))
	return b
}

// produce writes values, which are also their keys, to a partition of A, one batch each.
func (b *broker) produce(partition int32, values ...string) {
	b.t.Helper()
	for _, v := range values {
		if err := b.client.ProduceSync(b.t.Context(), &kgo.Record{Topic: "A", Partition: partition, Key: []byte(v), Value: []byte(v)}).FirstErr(); err != nil {
			b.t.Fatal(err)
		}
	}
}

// transact writes a value to partition 0 of A in a transaction, and commits or aborts it.
func (b *broker) transact(value string, end kgo.TransactionEndTry) {
	b.t.Helper()
	producer := world.Connect(b.t, b.Cluster, kgo.TransactionalID("test"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	err := producer.BeginTransaction()
	if err == nil {
		err = producer.ProduceSync(b.t.Context(), &kgo.Record{Topic: "A", Value: []byte(value)}).FirstErr()
	}
	if err = errors.Join(err, producer.EndTransaction(b.t.Context(), end)); err != nil {
		b.t.Fatal(err)
	}
}

// list returns the spans of A since a time.
func (b *broker) list(since time.Time) topicreader.Spans {
	b.t.Helper()
	spans, err := topicreader.List(b.t.Context(), b.client, since, "A")
	if err != nil {
		b.t.Fatal(err)
	}
	return spans
}

// read returns what a reader reads as texts, sorted by partition, and the positions that it has reached.
func (b *broker) read(r topicreader.Reader, spans topicreader.Spans) (got []string, next map[int32]int64, err error) {
	r.Client, next = b.client, make(map[int32]int64)
	for batch, err := range r.Read(b.t.Context(), spans) {
		if err != nil {
			return got, next, err
		}
		for _, rec := range batch.Records {
			got = append(got, fmt.Sprintf("%d/%d %s", rec.Partition, rec.Offset, rec.Value))
		}
		next[batch.Partition] = batch.Next
	}
	slices.SortStableFunc(got, func(x, y string) int { return strings.Compare(x[:1], y[:1]) })
	return got, next, nil
}

// check reads spans to their ends and compares the records.
func (b *broker) check(r topicreader.Reader, spans topicreader.Spans, want ...string) {
	b.t.Helper()
	got, next, err := b.read(r, spans)
	if err != nil || !slices.Equal(got, want) {
		b.t.Errorf("read %q, %v\nwant %q", got, err, want)
	}
	for p, span := range spans["A"] {
		if span.From < span.End && next[p] != span.End {
			b.t.Errorf("partition %d is read up to %d, want %d", p, next[p], span.End)
		}
	}
}

func TestRead_FromOffsetsUpToOthers(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.produce(0, "a", "b", "c", "d")
	b.produce(1, "e")
	spans := b.list(time.Time{})
	b.produce(0, "after the end")
	b.check(topicreader.Reader{}, spans, "0/0 a", "0/1 b", "0/2 c", "0/3 d", "1/0 e")
	b.check(topicreader.Reader{MaxBytes: 1}, spans, "0/0 a", "0/1 b", "0/2 c", "0/3 d", "1/0 e")
	b.check(topicreader.Reader{}, topicreader.Spans{"A": {0: {1, 3}, 1: {1, 1}}}, "0/1 b", "0/2 c")
	b.check(topicreader.Reader{}, topicreader.Spans{})
}

// The newest offsets of spans are taken from each partition in proportion.
func TestSpans_Newest(t *testing.T) {
	t.Parallel()
	all := topicreader.Spans{"a": {0: {0, 900}, 1: {50, 150}}}
	if got := all.Newest(1000); got.Size() != 1000 {
		t.Errorf("within the limit there are %d offsets, want 1000", got.Size())
	}
	got := all.Newest(100)
	if p := got["a"]; p[0] != (topicreader.Span{From: 809, End: 900}) || p[1] != (topicreader.Span{From: 139, End: 150}) {
		t.Errorf("Newest(100) = %v", got)
	}
}

func TestList_Bounds(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.produce(0, "a", "b")
	for since, want := range map[time.Time]topicreader.Span{
		{}:                          {0, 2},
		time.Unix(-5, 0):            {0, 2}, // negative times have other meanings
		time.Now().Add(-time.Hour):  {0, 2},
		time.Now().Add(time.Minute): {2, 2},
	} {
		if got := b.list(since)["A"]; len(got) != 2 || got[0] != want || got[1] != (topicreader.Span{}) {
			t.Errorf("since %s: %v, want %v", since, got, want)
		}
	}
	if got, err := topicreader.List(t.Context(), b.client, time.Time{}, "none", "A"); err != nil || len(got) != 1 || len(got["A"]) != 2 {
		t.Errorf("with a topic that does not exist: %v, %v", got, err)
	}
	if got, err := topicreader.List(t.Context(), b.client, time.Time{}); err != nil || len(got) != 0 {
		t.Errorf("of no topics: %v, %v", got, err)
	}
	// A record that is written while the offsets are listed is in the span of the next list.
	b.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
		b.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
			b.SleepControl(func() { b.produce(0, "c") })
			return nil, nil, false
		})
		return nil, nil, false
	})
	if got := b.list(time.Now().Add(time.Hour))["A"][0]; got != (topicreader.Span{From: 2, End: 2}) {
		t.Errorf("while a record is written: %v", got)
	}
}

func TestRead_Transactions(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.transact("committed", kgo.TryCommit)
	b.produce(0, "plain")
	b.transact("aborted", kgo.TryAbort)
	b.check(topicreader.Reader{}, b.list(time.Time{}), "0/0 committed", "0/2 plain") // the end is a control record
	b.check(topicreader.Reader{Uncommitted: true}, b.list(time.Time{}), "0/0 committed", "0/2 plain", "0/3 aborted")
	// An open transaction is behind the end.
	producer := world.Connect(t, b.Cluster, kgo.TransactionalID("open"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := errors.Join(producer.BeginTransaction(), producer.ProduceSync(t.Context(), &kgo.Record{Topic: "A", Value: []byte("open")}).FirstErr()); err != nil {
		t.Fatal(err)
	}
	b.check(topicreader.Reader{}, b.list(time.Time{}), "0/0 committed", "0/2 plain")
}

// Compaction removes records from the middle and the end of a span.
func TestRead_CompactionGaps(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.produce(0, "a", "b", "b", "c")
	compact := "compact"
	if _, err := kadm.NewClient(b.client).AlterTopicConfigs(t.Context(), []kadm.AlterConfig{{Name: "cleanup.policy", Value: &compact}}, "A"); err != nil {
		t.Fatal(err)
	}
	b.Compact()
	b.check(topicreader.Reader{}, b.list(time.Time{}), "0/0 a", "0/2 b", "0/3 c")
	b.check(topicreader.Reader{}, topicreader.Spans{"A": {0: {1, 2}}})
	// The last batch has no records any more: it keeps its offsets.
	b.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		req := kreq.(*kmsg.FetchRequest)
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic, rt.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.HighWatermark, rp.LastStableOffset = 3, 3
		batch := kmsg.RecordBatch{FirstOffset: 1, LastOffsetDelta: 1, Magic: 2, Length: 49}
		raw := batch.AppendTo(nil)
		batch.CRC = int32(crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
		rp.RecordBatches = batch.AppendTo(nil)
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	b.check(topicreader.Reader{}, topicreader.Spans{"A": {0: {1, 3}}})
}

// Records that are deleted after their offsets were listed, and records of another topic of the
// name, are errors: nothing is left out silently.
func TestRead_LostRecords(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.produce(0, "a", "b", "c")
	b.produce(1, "d")
	spans := b.list(time.Time{})
	if err := b.DeleteRecords("A", 0, 2); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.read(topicreader.Reader{}, spans); !errors.Is(err, kerr.OffsetOutOfRange) || !strings.Contains(err.Error(), "A/0 from offset 0 to 3") {
		t.Errorf("of deleted records: %v", err)
	}
	b.produce(0, "e", "f", "g")
	r := topicreader.Reader{Client: b.client, MaxBytes: 1} // one record at a time, and one ahead
	var err error
	for batch, e := range r.Read(t.Context(), topicreader.Spans{"A": {0: {2, 6}}}) {
		if err = e; batch.Next == 3 {
			if err := errors.Join(b.DeleteTopic("A"), b.CreateTopic("A", 2, nil)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !errors.Is(err, topicreader.ErrRecreated) {
		t.Errorf("of a topic that was created again: %v", err)
	}
}

// A partition that moves, and brokers that return errors for a while, are read.
func TestRead_LeaderMoves(t *testing.T) {
	t.Parallel()
	b := start(t, kfake.NumBrokers(2))
	b.produce(0, "a", "b", "c")
	moved := false
	var got []string
	for batch, err := range (&topicreader.Reader{Client: b.client, MaxBytes: 1}).Read(t.Context(), b.list(time.Time{})) {
		if err != nil {
			t.Fatal(err)
		}
		if !moved {
			moved = true
			if err := b.MoveTopicPartition("A", 0, 1-b.LeaderFor("A", 0)); err != nil {
				t.Fatal(err)
			}
			b.ControlKey(int16(kmsg.Metadata), func(kmsg.Request) (kmsg.Response, error, bool) {
				return nil, errors.New("the connection ends"), true
			})
		}
		for _, rec := range batch.Records {
			got = append(got, string(rec.Value))
		}
	}
	if !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Errorf("read %q", got)
	}
}

// A reader with a rack reads from the replica that the leader names, and from the leader while that
// replica has errors.
func TestRead_Rack(t *testing.T) {
	t.Parallel()
	b := start(t, kfake.NumBrokers(2))
	b.produce(0, "a")
	leader := b.LeaderFor("A", 0)
	b.SetFollowers("A", 0, []int32{1 - leader})
	b.client = world.Connect(t, b.Cluster, kgo.Rack("near"))
	failed, at := false, []int32{}
	b.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		b.KeepControl()
		req, node := kreq.(*kmsg.FetchRequest), b.CurrentNode()
		at = append(at, node)
		if node != leader && failed {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic, rt.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
		rp := kmsg.NewFetchResponseTopicPartition()
		if node != leader {
			failed, rp.ErrorCode = true, kerr.OffsetOutOfRange.Code
		} else if req.Rack == "near" {
			rp.PreferredReadReplica = 1 - leader
		}
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	b.check(topicreader.Reader{}, b.list(time.Time{}), "0/0 a")
	if want := []int32{leader, 1 - leader, leader, 1 - leader}; !slices.Equal(at, want) {
		t.Errorf("read from the brokers %v, want %v", at, want)
	}
}

// Without an answer, reading ends by Stall and by ctx, and names the partitions that it has not
// read.
func TestRead_BrokerAway(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.produce(0, "a", "b")
	spans := b.list(time.Time{})
	b.Close()
	if _, _, err := b.read(topicreader.Reader{Stall: time.Millisecond}, spans); err == nil || !strings.Contains(err.Error(), "A/0 from offset 0 to 2") {
		t.Errorf("the error is %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := errors.New("ended")
	cancel(ended)
	for _, err := range (&topicreader.Reader{Client: b.client}).Read(ctx, spans) {
		if !errors.Is(err, ended) {
			t.Errorf("after the end of ctx the error is %v", err)
		}
	}
}

// The loop may be left early, and it does not wait for records that it has not read.
func TestRead_LeftEarly(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.produce(0, "a", "b", "c")
	for batch, err := range (&topicreader.Reader{Client: b.client, MaxBytes: 1}).Read(t.Context(), topicreader.Spans{"A": {0: {0, 1000}}}) {
		if err != nil || string(batch.Records[0].Value) != "a" {
			t.Errorf("read %v, %v", batch, err)
		}
		break
	}
}

// Denied access ends reading.
func TestRead_Denied(t *testing.T) {
	t.Parallel()
	b := start(t)
	b.produce(0, "a")
	spans := b.list(time.Time{})
	b.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		req := kreq.(*kmsg.FetchRequest)
		resp := req.ResponseKind().(*kmsg.FetchResponse)
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic, rt.TopicID = req.Topics[0].Topic, req.Topics[0].TopicID
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.ErrorCode = kerr.TopicAuthorizationFailed.Code
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp, nil, true
	})
	if _, _, err := b.read(topicreader.Reader{}, spans); !errors.Is(err, kerr.TopicAuthorizationFailed) {
		t.Errorf("the error is %v", err)
	}
}
