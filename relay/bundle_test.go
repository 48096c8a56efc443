package relay

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// bundle is a publisher with a broker in memory. It is made inside a synctest
// bubble, so all waiting takes no time.
type bundle struct {
	t         *testing.T
	net       *kfake.VirtualNetwork
	cluster   *kfake.Cluster
	cfg       Config
	publisher *publisher
	fatal     chan error
}

func setup(t *testing.T, change func(*Config), opts ...kfake.Opt) *bundle {
	t.Helper()
	b := &bundle{t: t, net: new(kfake.VirtualNetwork), fatal: make(chan error, 16)}
	cluster, err := kfake.NewCluster(append([]kfake.Opt{
		kfake.NumBrokers(1), kfake.Ports(9092), kfake.ListenFn(b.net.Listen), kfake.DefaultNumPartitions(3),
	}, opts...)...)
	if err != nil {
		t.Fatalf("NewCluster() error = %v", err)
	}
	b.cluster = cluster
	b.cfg = Config{
		Brokers: []string{"127.0.0.1:9092"}, Kafka: []kgo.Opt{kgo.Dialer(b.net.DialContext)},
		Partitions: 3, Logger: relaytest.Logger(t),
		Load: func(context.Context) (Load, error) { return Load{}, nil }, // not that of the machine of the tests
	}
	if change != nil {
		change(&b.cfg)
	}
	b.cfg = b.cfg.withDefaults()
	b.publisher, err = newPublisher(&b.cfg, newMetrics(prometheus.NewRegistry()), func(err error) { b.fatal <- err })
	if err != nil {
		t.Fatalf("newPublisher() error = %v", err)
	}
	return b
}

// close ends the publisher and the broker; a bubble must be empty at its end.
func (b *bundle) close() {
	b.publisher.close()
	b.cluster.Close()
}

// fewer is how many seeds a random test tries of n: with -short, which the race
// detector runs with, the first quarter.
func fewer(n uint64) uint64 {
	if testing.Short() {
		return max(n/4, 2)
	}
	return n
}

// long skips with -short a test of many hours. The race detector finds nothing in
// them that it does not find in the first minutes.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("hours of virtual time")
	}
}

// submit hands on an event and fails the test if it is not taken.
func (b *bundle) submit(e outbox.Event, settled func()) {
	b.t.Helper()
	if settled == nil {
		settled = func() {}
	}
	if err := b.publisher.submit(b.t.Context(), cdclog.StoredEvent{Event: e}, bySweep, settled); err != nil {
		b.t.Fatalf("submit(%s) error = %v", e.ID, err)
	}
}

// drain waits until all events are acknowledged but those that wait for a
// person or for their time.
func (b *bundle) drain(limit time.Duration) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), limit)
	defer cancel()
	for {
		b.publisher.drain(ctx)
		open, blocked := b.publisher.remaining()
		if open == blocked {
			return
		}
		if retry.Wait(ctx, 10*time.Millisecond) != nil { // the breaker may be open
			b.t.Fatalf("%d events are left after %s", open-blocked, limit)
		}
	}
}

// delivered is a record as a consumer saw it.
type delivered struct {
	outbox.Event
	topic     string
	partition int32
	offset    int64
	at        time.Time
	headers   []kgo.RecordHeader
}

// header is the value of a record header, empty without one.
func (d *delivered) header(key string) string {
	i := slices.IndexFunc(d.headers, func(h kgo.RecordHeader) bool { return h.Key == key })
	if i < 0 {
		return ""
	}
	return string(d.headers[i].Value)
}

// consume reads all topics of the broker to their ends, in the order of the
// broker's time where there is one: by topic, partition and offset.
func (b *bundle) consume(topics ...string) []delivered {
	b.t.Helper()
	cl, err := kgo.NewClient(append(slices.Clone(b.cfg.Kafka), kgo.SeedBrokers(b.cfg.Brokers...),
		kgo.ConsumeTopics(topics...), kgo.FetchMaxWait(100*time.Millisecond))...)
	if err != nil {
		b.t.Fatalf("NewClient() error = %v", err)
	}
	defer cl.Close()
	var out []delivered
	for {
		ctx, cancel := context.WithTimeout(b.t.Context(), 5*time.Second)
		fs := cl.PollFetches(ctx)
		cancel()
		if ctx.Err() != nil && fs.NumRecords() == 0 {
			break
		}
		fs.EachRecord(func(r *kgo.Record) {
			e, _, err := outbox.FromRecord(r.Key, r.Value, r.Headers)
			if err != nil {
				b.t.Errorf("FromRecord() error = %v", err)
			}
			out = append(out, delivered{Event: e, topic: r.Topic, partition: r.Partition, offset: r.Offset, at: r.Timestamp, headers: r.Headers})
		})
	}
	slices.SortFunc(out, func(x, y delivered) int {
		if x.topic != y.topic {
			return cmp.Compare(x.topic, y.topic)
		}
		if x.partition != y.partition {
			return int(x.partition - y.partition)
		}
		return int(x.offset - y.offset)
	})
	return out
}

// checkOrder fails the test unless got holds exactly the events of want, each
// once, and each aggregate's of one topic on one partition in sequence.
func checkOrder(t *testing.T, got []delivered, want []outbox.Event) {
	t.Helper()
	missing := make(map[gocql.UUID]bool)
	for _, e := range want {
		missing[e.ID] = true
	}
	type line struct {
		topic string
		id    gocql.UUID
	}
	last := make(map[line]delivered)
	for _, d := range got {
		if !missing[d.ID] {
			t.Errorf("event %s (aggregate %s, seq %d) came twice or was never sent", d.ID, d.AggregateID, d.Sequence)
		}
		delete(missing, d.ID)
		k := line{d.topic, d.AggregateID}
		if l, ok := last[k]; ok && (l.partition != d.partition || l.Sequence >= d.Sequence) {
			t.Errorf("aggregate %s: seq %d on partition %d comes after seq %d on partition %d",
				d.AggregateID, d.Sequence, d.partition, l.Sequence, l.partition)
		}
		last[k] = d
	}
	if len(missing) > 0 {
		t.Errorf("%d of %d events are lost", len(missing), len(want))
	}
}
