package relay

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
)

// BenchmarkReadback is a start after 100,000 events, on a broker on loopback.
// What is waited for quiet is in it.
func BenchmarkReadback(b *testing.B) {
	const n = 100_000
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(6, "OrderCreated", "OrderUpdated"))
	if err != nil {
		b.Fatal(err)
	}
	defer cluster.Close()
	cfg := Config{Brokers: cluster.ListenAddrs(), Logger: slog.New(slog.DiscardHandler), Topics: map[string]string{"a": "OrderCreated", "b": "OrderUpdated"}}.withDefaults()
	m := newMetrics(prometheus.NewRegistry())
	p, err := newPublisher(cfg.engine(), m.engineMetrics, func(err error) { b.Error(err) })
	if err != nil {
		b.Fatal(err)
	}
	defer p.close()
	for _, e := range relaytest.Events(n/2, 2, "OrderCreated", "OrderUpdated") {
		if err := p.submit(b.Context(), cdclog.StoredEvent{Event: e}, bySweep, nil); err != nil {
			b.Fatal(err)
		}
	}
	p.drain(b.Context())
	store := relaytest.NewCheckpoints()
	store.First = time.Now().Add(-time.Hour)
	for b.Loop() {
		r := newReadback(&cfg, m, store, fixedGenerations{}, p)
		if err := r.run(b.Context()); err != nil {
			b.Fatal(err)
		}
		if fresh, _, _ := p.memory.size(); fresh < n {
			b.Fatalf("%d events are known, want %d", fresh, n)
		}
		p.memory = newMemory(cfg.MaxRememberedEvents, cfg.MaxAggregates)
	}
	quiet := cfg.ReadBackQuiet.Seconds()
	b.ReportMetric(n/(b.Elapsed().Seconds()/float64(b.N)-quiet), "events/s")
}
