package capture

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	tags "github.com/scylla-outbox/scylla-outbox/internal/settings"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish/publishtest"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// settings are the configurations of the readers and of their publisher.
type settings struct {
	Config
	publish publish.Config
}

// newSettings returns the default configuration.
func newSettings(log *slog.Logger) settings {
	c := settings{
		Config: Config{
			TableKeyspace: "outbox", Table: "outbox_messages", TailLimiter: NewTailLimiter(1000),
			MaxInFlightRecords: 10_000, MaxInFlightBytes: 64 << 20, RetryMin: 100 * time.Millisecond, Logger: log,
		},
		publish: publishtest.Config(log),
	}
	c.TailMinInterval = 5 * time.Millisecond
	tags.SetDefaults(&c.Settings)
	return c
}

// maxStreamBacklog is the backlog of a stream in a test.
const maxStreamBacklog = 10_000

// fixture is a publisher with a broker in memory. Tests create it inside a synctest bubble,
// so waiting takes no real time.
type fixture struct {
	t         *testing.T
	cluster   *kfake.Cluster
	cfg       settings
	metrics   *Metrics
	published *publish.Metrics
	publisher *publish.Publisher
}

func setup(t *testing.T, change func(*settings)) *fixture {
	t.Helper()
	net := new(kfake.VirtualNetwork)
	b := &fixture{t: t, cfg: newSettings(relaytest.Logger(t)), metrics: NewMetrics(prometheus.NewRegistry()), published: publish.NewMetrics(prometheus.NewRegistry())}
	b.cluster = relaytest.StartBroker(t, net)
	var err error
	b.cfg.publish.Brokers, b.cfg.publish.Kafka = []string{"127.0.0.1:9092"}, []kgo.Opt{kgo.Dialer(net.DialContext)}
	if change != nil {
		change(&b.cfg)
	}
	if b.publisher, err = publish.New(&b.cfg.publish, b.published, func(err error) { t.Error(err) }); err != nil {
		t.Fatalf("publish.New() error = %v", err)
	}
	return b
}

// close closes the publisher and the broker; a bubble must be empty at its end.
func (b *fixture) close() {
	b.publisher.Close()
	b.cluster.Close()
}

// submit offers an event and fails the test if it is not accepted.
func (b *fixture) submit(e outbox.Event) {
	b.t.Helper()
	if err := b.publisher.Submit(b.t.Context(), cdclog.StoredEvent{Event: e}, publish.BySweep, publish.Settlement{}); err != nil {
		b.t.Fatalf("submit(%s) error = %v", e.ID, err)
	}
}

// consume reads a topic of the broker to its end.
func (b *fixture) consume(topic string) []relaytest.Delivered {
	b.t.Helper()
	return relaytest.Consume(b.t, b.cfg.publish.Brokers, b.cfg.publish.Kafka, topic)
}
