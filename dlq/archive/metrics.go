package archive

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	letters         *prometheus.CounterVec
	expired, errors prometheus.Counter
	success         prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		letters: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_dead_letter_retention_moved_total",
			Help: "Dead letters that a sweep moved to the archive, left because others wait behind them or because somebody changed them meanwhile, or forgot.",
		}, []string{"result"}),
		expired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outbox_dead_letter_retention_objects_expired_total", Help: "Objects removed from the archive because their time was over.",
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outbox_dead_letter_retention_errors_total", Help: "Sweeps of old dead letters that failed; they go on later.",
		}),
		success: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "outbox_dead_letter_retention_last_success_timestamp_seconds", Help: "When a sweep of this process last came to its end; 0 before the first.",
		}),
	}
	for _, r := range []string{"archived", "held", "changed", "forgotten"} {
		m.letters.WithLabelValues(r)
	}
	if reg != nil {
		reg.MustRegister(m.letters, m.expired, m.errors, m.success)
	}
	return m
}

func (m *metrics) of(result string) prometheus.Counter { return m.letters.WithLabelValues(result) }
