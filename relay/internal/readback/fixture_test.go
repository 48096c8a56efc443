package readback

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	tags "github.com/scylla-outbox/scylla-outbox/internal/settings"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish/publishtest"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// settings are the configurations of a publisher and of what reads its topics back.
type settings struct {
	publish publish.Config
	read    Config
}

// newSettings are the ones of a relay without changes, for a broker at the addresses.
func newSettings(log *slog.Logger, topics map[string]string, brokers []string, kafka ...kgo.Opt) settings {
	p := publishtest.Config(log)
	p.Brokers, p.Kafka, p.Topics = brokers, kafka, topics
	c := settings{
		publish: p,
		read: Config{
			Source: "scylla-outbox", Topics: topics, FirstAge: 72 * time.Hour, MaxInFlightRecords: 10_000,
			Share: new(dedup.Pool).Share(1_000_000, 0), RetryMin: 100 * time.Millisecond, RetryMax: 30 * time.Second, Logger: log,
		},
	}
	tags.SetDefaults(&c.read.Settings)
	return c
}

// fixture is a broker in memory, in a synctest bubble.
type fixture struct {
	t        *testing.T
	cluster  *kfake.Cluster
	settings settings
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	net := new(kfake.VirtualNetwork)
	return &fixture{t: t, cluster: relaytest.StartBroker(t, net), settings: newSettings(relaytest.Logger(t),
		map[string]string{"a": "a", "b": "b"}, []string{"127.0.0.1:9092"}, kgo.Dialer(net.DialContext))}
}

// publishAll publishes the events.
func (b *fixture) publishAll(all []outbox.Event) {
	b.t.Helper()
	p, err := publish.New(&b.settings.publish, publish.NewMetrics(prometheus.NewRegistry()), func(err error) { b.t.Error(err) })
	if err != nil {
		b.t.Fatal(err)
	}
	defer p.Close()
	for _, e := range all {
		if err := p.Submit(b.t.Context(), cdclog.StoredEvent{Event: e}, publish.BySweep, publish.Settlement{}); err != nil {
			b.t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	if left := p.Drain(ctx); left > 0 {
		b.t.Fatalf("%d events are not published", left)
	}
}
