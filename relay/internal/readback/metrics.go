package readback

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
)

// Metrics contains the results of the read-back at the start.
type Metrics struct {
	Partitions *prometheus.GaugeVec
	Waiting    *prometheus.GaugeVec
	Events     prometheus.Gauge
	seconds    prometheus.Gauge
	offset     prometheus.Gauge
}

// NewMetrics registers the metrics of read-back.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		Partitions: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "outbox_relay_readback_partitions",
			Help: "Partitions at the start, by result: read; denied (no read access to the topic); unread (no response; their events wait); corrupt (a batch cannot be decoded). Events published since the last checkpoint to denied partitions, and in batches that cannot be decoded, are published again.",
		}, []string{"result"}),
		Waiting: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "outbox_relay_readback_partitions_waiting", Help: "1 for each partition that cannot be read back yet, to which nothing is published. Partition -1 is all of the topic.",
		}, []string{"topic", "partition"}),
		Events: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "outbox_relay_readback_events", Help: "Events that the start found in the topics.",
		}),
		seconds: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "outbox_relay_readback_duration_seconds", Help: "Duration of the read-back at the start.",
		}),
	}
	m.offset = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "outbox_relay_readback_clock_offset_seconds",
		Help: "Least difference between the time of a record and the creation of its event, among the records that the start read; negative if the clock that dates records is behind.",
	})
	for _, result := range []string{"read", "denied", "unread", "corrupt"} {
		m.Partitions.WithLabelValues(result)
	}
	reg.MustRegister(m.Partitions, m.Waiting, m.Events, m.seconds, m.offset)
	return m
}

// awaits sets the waiting partitions.
func (m *Metrics) awaits(parts []publish.Partition) {
	m.Waiting.Reset()
	for _, p := range parts {
		m.Waiting.WithLabelValues(p.Topic, strconv.Itoa(int(p.Part))).Set(1)
	}
}
