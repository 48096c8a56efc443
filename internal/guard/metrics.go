package guard

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// limiterMetrics are the metrics of a Limiter. All labels are bounded and start at zero.
type limiterMetrics struct{ shed *prometheus.CounterVec }

func newLimiterMetrics() *limiterMetrics {
	m := &limiterMetrics{shed: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "outbox_requests_shed_total",
		Help: "Requests refused with 503 because of overload, by reason.",
	}, []string{"reason"})}
	m.shed.WithLabelValues(shedFull)
	m.shed.WithLabelValues(shedWaited)
	return m
}

// register registers the metrics and the gauges of l; a nil reg registers nothing.
func (m *limiterMetrics) register(reg prometheus.Registerer, l *Limiter) error {
	if reg == nil {
		return nil
	}
	gauge := func(name, help string, of func(Occupancy) int) error {
		return reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(of(l.Occupancy())) }))
	}
	return errors.Join(
		reg.Register(m.shed),
		gauge("outbox_concurrency_limit", "Writes and reads at the database that requests may make concurrently; follows its latency.", func(o Occupancy) int { return o.Limit }),
		gauge("outbox_concurrency_in_use", "Places within the limit that requests use.", func(o Occupancy) int { return o.Taken }),
		gauge("outbox_concurrency_waiting", "Places within the limit that requests wait for.", func(o Occupancy) int { return o.Waiting }),
	)
}
