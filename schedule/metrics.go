package schedule

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/latency"
)

// metrics are the scheduler's. They have no labels.
type metrics struct {
	released prometheus.Counter
	failed   prometheus.Counter
	pending  prometheus.Gauge
	late     prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		released: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outbox_schedule_released_total", Help: "Scheduled messages released to the outbox.",
		}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outbox_schedule_failures_total", Help: "Failed scans and releases of scheduled messages; retried.",
		}),
		pending: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "outbox_schedule_pending_messages", Help: "Scheduled messages in memory that are due soon.",
		}),
		late: prometheus.NewHistogram(latency.Opts("outbox_schedule_lateness_seconds", "Time from when a message was due to its event in the outbox.",
			[]float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600, 3600})),
	}
	for _, c := range []prometheus.Collector{m.released, m.failed, m.pending, m.late} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register schedule metrics: %w", err)
		}
	}
	return m, nil
}

// watch registers the metrics that are computed when scraped.
func (m *metrics) watch(reg prometheus.Registerer, s *Scheduler) error {
	g := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "outbox_schedule_overdue_seconds", Help: "Age of the oldest due message that is not in the outbox; 0 without one or on a standby, NaN while it is unknown.",
	}, func() float64 { return s.overdue(s.clock.Now()) })
	working := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "outbox_schedule_working", Help: "1 if this scheduler has the lease.",
	}, func() float64 {
		if s.working() {
			return 1
		}
		return 0
	})
	for _, c := range []prometheus.Collector{g, working} {
		if err := reg.Register(c); err != nil {
			return fmt.Errorf("register schedule metrics: %w", err)
		}
	}
	return nil
}
