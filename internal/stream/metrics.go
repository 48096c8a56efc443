package stream

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the hub's. They have no labels.
type metrics struct {
	subscriptions prometheus.Gauge
	read          prometheus.Counter
	sent          prometheus.Counter
	dropped       prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		subscriptions: prometheus.NewGauge(prometheus.GaugeOpts{Name: "outbox_stream_subscriptions", Help: "Open subscriptions to events."}),
		read:          prometheus.NewCounter(prometheus.CounterOpts{Name: "outbox_stream_records_read_total", Help: "Records read from subscribed topics."}),
		sent:          prometheus.NewCounter(prometheus.CounterOpts{Name: "outbox_stream_events_total", Help: "Events sent to subscriptions, counted for each subscription."}),
		dropped:       prometheus.NewCounter(prometheus.CounterOpts{Name: "outbox_stream_dropped_total", Help: "Subscriptions ended because the client read too slowly."}),
	}
	for _, c := range []prometheus.Collector{m.subscriptions, m.read, m.sent, m.dropped} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register event stream metrics: %w", err)
		}
	}
	return m, nil
}
