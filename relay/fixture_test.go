package relay

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	testworld "github.com/scylla-outbox/scylla-outbox/test/world"
)

// fixture is a publisher with a broker in memory. It is made inside a synctest
// bubble, so all waiting takes no time.
type fixture struct {
	t         *testing.T
	net       *kfake.VirtualNetwork
	cluster   *kfake.Cluster
	cfg       Config
	metrics   *metrics
	publisher *publish.Publisher
	fatal     chan error
}

func setup(t *testing.T, change func(*Config), opts ...kfake.Opt) *fixture {
	t.Helper()
	b := &fixture{t: t, net: new(kfake.VirtualNetwork), fatal: make(chan error, 16)}
	b.cluster = relaytest.StartBroker(t, b.net, opts...)
	b.cfg = Config{
		Brokers: []string{"127.0.0.1:9092"}, Kafka: []kgo.Opt{kgo.Dialer(b.net.DialContext)},
		Logger: relaytest.Logger(t), LoadMeter: testworld.Idle{},
	}
	b.cfg.Partitions = 3
	if change != nil {
		change(&b.cfg)
	}
	b.cfg = b.cfg.withDefaults()
	b.metrics = newMetrics(prometheus.NewRegistry())
	var err error
	b.publisher, err = publish.New(b.cfg.publish(), b.metrics.Metrics, func(err error) { b.fatal <- err })
	if err != nil {
		t.Fatalf("newPublisher() error = %v", err)
	}
	return b
}

// close ends the publisher and the broker; a bubble must be empty at its end.
func (b *fixture) close() {
	b.publisher.Close()
	b.cluster.Close()
}

// submit hands on an event and fails the test if it is not taken.
func (b *fixture) submit(e outbox.Event, settled func()) {
	b.t.Helper()
	if settled == nil {
		settled = func() {}
	}
	if err := b.publisher.Submit(b.t.Context(), cdclog.StoredEvent{Event: e}, publish.BySweep, publish.OnSettled(settled)); err != nil {
		b.t.Fatalf("submit(%s) error = %v", e.ID, err)
	}
}

// drain waits until all events are acknowledged except blocked ones, and fails the test
// after limit.
func (b *fixture) drain(limit time.Duration) {
	b.t.Helper()
	relaytest.Drain(b.t, b.publisher, limit)
}

// consume reads all topics of the broker to their ends.
func (b *fixture) consume(topics ...string) []relaytest.Delivered {
	b.t.Helper()
	return relaytest.Consume(b.t, b.cfg.Brokers, b.cfg.Kafka, topics...)
}

// kafka returns the client of the fixture's publisher.
func (b *fixture) kafka() *kgo.Client {
	client, _ := b.publisher.Kafka()
	return client
}

// admin returns an administrator of the broker's topics.
func (b *fixture) admin() *kadm.Client {
	cl, err := kgo.NewClient(append(slices.Clone(b.cfg.Kafka), kgo.SeedBrokers(b.cfg.Brokers...))...)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(cl.Close)
	return kadm.NewClient(cl)
}
