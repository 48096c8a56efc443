package readback

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/relaytest"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// BenchmarkReadback is a start after 100,000 events, on a broker on loopback. The wait for quiet is
// included.
func BenchmarkReadback(b *testing.B) {
	const n = 100_000
	cluster := world.StartBroker(b, kfake.SeedTopics(6, "OrderCreated", "OrderUpdated"))
	settings := newSettings(slog.New(slog.DiscardHandler), map[string]string{"a": "OrderCreated", "b": "OrderUpdated"}, cluster.ListenAddrs())
	metrics, read := publish.NewMetrics(prometheus.NewRegistry()), NewMetrics(prometheus.NewRegistry())
	p, err := publish.New(&settings.publish, metrics, func(err error) { b.Error(err) })
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	for _, e := range relaytest.Events(n/2, 2, "OrderCreated", "OrderUpdated") {
		if err := p.Submit(b.Context(), cdclog.StoredEvent{Event: e}, publish.BySweep, publish.Settlement{}); err != nil {
			b.Fatal(err)
		}
	}
	p.Drain(b.Context())
	store := relaytest.NewCheckpoints()
	store.First = time.Now().Add(-time.Hour)
	for b.Loop() {
		b.StopTimer()
		p, err := publish.New(&settings.publish, metrics, func(err error) { b.Error(err) })
		if err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		r := New(&settings.read, read, store, fixedGenerations{}, p)
		if err := r.Run(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if fresh := p.State().Fresh; fresh < n {
			b.Fatalf("%d events are known, want %d", fresh, n)
		}
		p.Close()
		b.StartTimer()
	}
	quiet := settings.read.ReadBackQuiet.Seconds()
	b.ReportMetric(n/(b.Elapsed().Seconds()/float64(b.N)-quiet), "events/s")
}
