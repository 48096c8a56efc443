package publish

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/settings"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// fixture is a publisher with an in-memory broker. Tests create it inside a synctest
// bubble, so waiting takes no real time.
type fixture struct {
	t         *testing.T
	net       *kfake.VirtualNetwork
	cluster   *kfake.Cluster
	cfg       Config
	publisher *Publisher
	fatal     chan error
}

// testConfig returns the default configuration.
func testConfig() Config {
	rules, err := dlq.NewStrategyRules(nil)
	if err != nil {
		panic(err)
	}
	c := Config{
		ShardName: "outbox", Table: "outbox_messages", Tail: true, ConfidenceWindow: 2 * time.Minute, ReadBackMargin: 30 * time.Second,
		Share: new(dedup.Pool).Share(1_000_000, 500_000), Rules: rules, LoadMeter: world.Idle{},
	}
	c.Partitions = 3
	settings.SetDefaults(&c.Settings)
	return c
}

func setup(t *testing.T, change func(*Config), opts ...kfake.Opt) *fixture {
	t.Helper()
	net := new(kfake.VirtualNetwork)
	b := &fixture{t: t, net: net, cfg: testConfig(), fatal: make(chan error, 16)}
	b.cluster = relaytest.StartBroker(t, net, opts...)
	b.cfg.Brokers, b.cfg.Kafka = []string{"127.0.0.1:9092"}, []kgo.Opt{kgo.Dialer(net.DialContext)}
	b.cfg.Logger = relaytest.Logger(t)
	if change != nil {
		change(&b.cfg)
	}
	var err error
	b.publisher, err = New(&b.cfg, NewMetrics(prometheus.NewRegistry()), func(err error) { b.fatal <- err })
	if err != nil {
		t.Fatalf("newPublisher() error = %v", err)
	}
	return b
}

// close closes the publisher and the broker; a bubble must be empty at its end.
func (b *fixture) close() {
	b.publisher.Close()
	b.cluster.Close()
}

// submit offers an event and fails the test if it is not accepted.
func (b *fixture) submit(e outbox.Event, settled func()) {
	b.t.Helper()
	if settled == nil {
		settled = func() {}
	}
	if err := b.publisher.Submit(b.t.Context(), cdclog.StoredEvent{Event: e}, BySweep, OnSettled(settled)); err != nil {
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
