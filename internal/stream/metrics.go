package stream

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the hub's. They have no labels.
type metrics struct {
	watchers prometheus.Gauge
	read     prometheus.Counter
	sent     prometheus.Counter
	dropped  prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		watchers: prometheus.NewGauge(prometheus.GaugeOpts{Name: "outbox_stream_subscriptions", Help: "Subscriptions to events."}),
		read:     prometheus.NewCounter(prometheus.CounterOpts{Name: "outbox_stream_records_read_total", Help: "Records that were read from watched topics as they came."}),
		sent:     prometheus.NewCounter(prometheus.CounterOpts{Name: "outbox_stream_events_total", Help: "Events that were handed to watchers, each counted for each."}),
		dropped:  prometheus.NewCounter(prometheus.CounterOpts{Name: "outbox_stream_dropped_total", Help: "Watchers that were dropped because they read too slowly."}),
	}
	for _, c := range []prometheus.Collector{m.watchers, m.read, m.sent, m.dropped} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register watch metrics: %w", err)
		}
	}
	return m, nil
}
