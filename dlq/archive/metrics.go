package archive

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	deadLetters     *prometheus.CounterVec
	expired, errors prometheus.Counter
	success         prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		deadLetters: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_dead_letter_retention_moved_total",
			Help: "Dead letters in sweeps by result: archived, deleted without an archive, held because they block others, changed concurrently, or forgotten.",
		}, []string{"result"}),
		expired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outbox_dead_letter_retention_objects_expired_total", Help: "Objects and payloads of events removed from the archive because their time was over.",
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outbox_dead_letter_retention_errors_total", Help: "Failed retention sweeps; retried at the next interval.",
		}),
		success: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "outbox_dead_letter_retention_last_success_timestamp_seconds", Help: "Time of the last completed sweep of this process; 0 before the first.",
		}),
	}
	for _, r := range []string{"archived", "deleted", "held", "changed", "forgotten"} {
		m.deadLetters.WithLabelValues(r)
	}
	if reg != nil {
		reg.MustRegister(m.deadLetters, m.expired, m.errors, m.success)
	}
	return m
}

func (m *metrics) of(result string) prometheus.Counter { return m.deadLetters.WithLabelValues(result) }
