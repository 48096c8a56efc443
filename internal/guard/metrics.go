package guard

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sony/gobreaker/v2"
)

// metrics are a guard's. All labels are bounded and start at zero.
type metrics struct {
	prefix string // of their names

	state   prometheus.Gauge
	changes *prometheus.CounterVec
	shed    *prometheus.CounterVec
}

// newMetrics returns the metrics of a service; their names begin with outbox_ and its name.
func newMetrics(service string) *metrics {
	prefix := "outbox_" + service
	m := &metrics{
		prefix: prefix,
		state: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: prefix + "_breaker_state",
			Help: "The breaker before the database: 0 closed, 1 half-open, 2 open.",
		}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "_breaker_changes_total",
			Help: "Changes of the breaker before the database, by the state it came to.",
		}, []string{"to"}),
		shed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "_shed_total",
			Help: "Requests refused with 429 because too many were there at once, by why.",
		}, []string{"reason"}),
	}
	for _, s := range []gobreaker.State{gobreaker.StateClosed, gobreaker.StateHalfOpen, gobreaker.StateOpen} {
		m.changes.WithLabelValues(s.String())
	}
	m.shed.WithLabelValues(shedFull)
	m.shed.WithLabelValues(shedWaited)
	return m
}

// register registers them, and the gauges of what is in r.
func (m *metrics) register(reg prometheus.Registerer, r *room) error {
	return errors.Join(
		reg.Register(m.state), reg.Register(m.changes), reg.Register(m.shed),
		reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: m.prefix + "_in_flight", Help: "Places at the database that requests have taken.",
		}, func() float64 { return float64(r.taken.Load()) })),
		reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: m.prefix + "_waiting", Help: "Places at the database that requests wait for.",
		}, func() float64 { return float64(r.waiting.Load()) })),
	)
}

func (m *metrics) breaker(to gobreaker.State) {
	m.state.Set(float64(to)) // closed 0, half-open 1, open 2
	m.changes.WithLabelValues(to.String()).Inc()
}
