package relay

import "github.com/prometheus/client_golang/prometheus"

// readBackMetrics say what the start learned from the topics.
type readBackMetrics struct {
	partitions *prometheus.GaugeVec
	waiting    prometheus.Gauge
	events     prometheus.Gauge
	seconds    prometheus.Gauge
}

func newReadBackMetrics(reg prometheus.Registerer) readBackMetrics {
	m := readBackMetrics{
		partitions: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "relay_readback_partitions",
			Help: "Partitions at the start, by result: read; denied, because the relay may not read the topic; unread, because nobody answered for them. What was published to those not read since the last checkpoint is published again.",
		}, []string{"result"}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "relay_readback_partitions_waiting", Help: "Partitions that a start waits for, because they cannot be read back yet.",
		}),
		events: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "relay_readback_events", Help: "Events that the start found in the topics.",
		}),
		seconds: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "relay_readback_seconds", Help: "How long the start read the topics back.",
		}),
	}
	for _, result := range []string{"read", "denied", "unread"} {
		m.partitions.WithLabelValues(result)
	}
	reg.MustRegister(m.partitions, m.waiting, m.events, m.seconds)
	return m
}
