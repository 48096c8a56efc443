package relaytest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Fewer returns the number of seeds that a random test tries of n: with -short, which the
// race detector uses, the first eighth.
func Fewer(n uint64) uint64 {
	if testing.Short() {
		return max(n/8, 2)
	}
	return n
}

// Long skips a test with -short, which the race detector uses: one of many hours or many
// variants, or one whose code the tests beside it run too. The tier test-full runs it.
func Long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("hours of virtual time, many variants, or code that other tests run")
	}
}

// StartBroker runs a broker in memory at 127.0.0.1:9092 of net, for tests in virtual time.
// The caller closes it, since a bubble must be empty at its end.
func StartBroker(t testing.TB, net *kfake.VirtualNetwork, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	cluster, err := kfake.NewCluster(append([]kfake.Opt{
		kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(net.Listen), kfake.DefaultNumPartitions(3),
	}, opts...)...)
	if err != nil {
		t.Fatalf("NewCluster() error = %v", err)
	}
	return cluster
}

// Delivered is a record as a consumer received it.
type Delivered struct {
	outbox.Record
	topic         string
	Partition     int32
	Offset        int64
	At            time.Time
	RecordHeaders []kgo.RecordHeader
}

// Header returns the value of a record header, empty without one.
func (d *Delivered) Header(key string) string {
	i := slices.IndexFunc(d.RecordHeaders, func(h kgo.RecordHeader) bool { return h.Key == key })
	if i < 0 {
		return ""
	}
	return string(d.RecordHeaders[i].Value)
}

// Consume returns the records of all topics of a broker, by topic, partition and offset.
func Consume(t testing.TB, brokers []string, kafka []kgo.Opt, topics ...string) []Delivered {
	t.Helper()
	cl, err := kgo.NewClient(append(slices.Clone(kafka), kgo.SeedBrokers(brokers...),
		kgo.ConsumeTopics(topics...), kgo.FetchMaxWait(100*time.Millisecond))...)
	if err != nil {
		t.Fatalf("NewClient() error = %v", err)
	}
	defer cl.Close()
	var out []Delivered
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		fs := cl.PollFetches(ctx)
		cancel()
		if ctx.Err() != nil && fs.NumRecords() == 0 {
			break
		}
		fs.EachRecord(func(r *kgo.Record) {
			e, err := outbox.FromRecord(r.Key, r.Value, r.Headers)
			if err != nil {
				t.Errorf("FromRecord() error = %v", err)
			}
			out = append(out, Delivered{Record: e, topic: r.Topic, Partition: r.Partition, Offset: r.Offset, At: r.Timestamp, RecordHeaders: r.Headers})
		})
	}
	slices.SortFunc(out, func(x, y Delivered) int {
		if x.topic != y.topic {
			return cmp.Compare(x.topic, y.topic)
		}
		if x.Partition != y.Partition {
			return int(x.Partition - y.Partition)
		}
		return int(x.Offset - y.Offset)
	})
	return out
}

// Drain waits until p has settled all events except blocked ones, and fails the test after
// limit.
func Drain(t *testing.T, p interface {
	Drain(context.Context) int
	Remaining() (open, blocked int)
}, limit time.Duration,
) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for {
		p.Drain(ctx)
		open, blocked := p.Remaining()
		if open == blocked {
			return
		}
		if retry.Wait(ctx, 10*time.Millisecond) != nil { // the breaker may be open
			t.Fatalf("%d events are left after %s", open-blocked, limit)
		}
	}
}

// CheckOrder fails the test unless got contains exactly the events of want, each once,
// and the events of an aggregate and topic are on one partition in order of sequence.
func CheckOrder(t *testing.T, got []Delivered, want []outbox.Event) {
	t.Helper()
	missing := make(map[gocql.UUID]bool)
	for _, e := range want {
		missing[e.ID.UUID()] = true
	}
	type line struct {
		topic string
		id    gocql.UUID
	}
	last := make(map[line]Delivered)
	for _, d := range got {
		if !missing[d.ID.UUID()] {
			t.Errorf("event %s (aggregate %s, seq %d) is a duplicate or unknown", d.ID, d.AggregateID, d.Sequence)
		}
		delete(missing, d.ID.UUID())
		k := line{d.topic, d.AggregateID.UUID()}
		if l, ok := last[k]; ok && (l.Partition != d.Partition || l.Sequence >= d.Sequence) {
			t.Errorf("aggregate %s: seq %d on partition %d comes after seq %d on partition %d",
				d.AggregateID, d.Sequence, d.Partition, l.Sequence, l.Partition)
		}
		last[k] = d
	}
	if len(missing) > 0 {
		t.Errorf("%d of %d events lost", len(missing), len(want))
	}
}

// Fence is a fence that a test closes.
type Fence struct{ Closed atomic.Bool }

func (f *Fence) Check() error {
	if f.Closed.Load() {
		return errors.New("lost the shard")
	}
	return nil
}

// Count returns the value of a counter.
func Count(c prometheus.Counter) float64 {
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		panic(err)
	}
	return m.GetCounter().GetValue()
}

// RefuseOnce makes the broker refuse the next records for the topic, once.
func RefuseOnce(cluster *kfake.Cluster, topic string) {
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.InvalidRecord})
}

// TakesNothing makes a topic refuse records until the returned function is called.
func TakesNothing(cluster *kfake.Cluster, topic string) (end func()) {
	return cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.NotEnoughReplicas, Count: -1}).Remove
}
