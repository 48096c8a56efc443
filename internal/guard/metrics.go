package guard

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/circuit"
)

// metrics are the metrics of a guard. All labels are bounded and start at zero.
type metrics struct {
	prefix string // of their names

	breaker *circuit.Metrics
	shed    *prometheus.CounterVec
}

// newMetrics returns the metrics of a service; their names begin with outbox_ and its name.
func newMetrics(service string) *metrics {
	prefix := "outbox_" + service
	m := &metrics{
		prefix:  prefix,
		breaker: circuit.NewMetrics(service, "database"),
		shed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "_shed_total",
			Help: "Requests refused with 429 because of overload, by reason.",
		}, []string{"reason"}),
	}
	m.shed.WithLabelValues(shedFull)
	m.shed.WithLabelValues(shedWaited)
	return m
}

// register registers the metrics and the gauges of r.
func (m *metrics) register(reg prometheus.Registerer, r *room) error {
	for _, c := range m.breaker.Collectors() {
		if err := reg.Register(c); err != nil {
			return err
		}
	}
	return errors.Join(
		reg.Register(m.shed),
		reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: m.prefix + "_in_flight", Help: "Places at the database in use by requests.",
		}, func() float64 { return float64(r.taken.Load()) })),
		reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: m.prefix + "_waiting", Help: "Places at the database that requests wait for.",
		}, func() float64 { return float64(r.waiting.Load()) })),
	)
}
