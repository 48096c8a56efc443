package circuit

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the metrics of a breaker. All breakers have the same metrics; the label breaker
// names the service. Labels are bounded and start at zero.
type Metrics struct {
	target   string
	State    *prometheus.GaugeVec
	Changes  *prometheus.CounterVec
	Failures prometheus.Counter
}

// NewMetrics returns the metrics of the breaker between a service and a target, such as
// "database".
func NewMetrics(service, target string) *Metrics {
	of := prometheus.Labels{"breaker": service}
	m := &Metrics{
		target: target,
		State: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "outbox_breaker_state", Help: "1 for the state of a circuit breaker, 0 for others. The relay's is before the broker, those of services before the database.",
			ConstLabels: of,
		}, []string{"state"}),
		Changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_breaker_changes_total", Help: "Changes of a circuit breaker, by the new state.", ConstLabels: of,
		}, []string{"state"}),
		Failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outbox_breaker_failures_total", Help: "Failed calls that a circuit breaker counts; what is sent together is one call.", ConstLabels: of,
		}),
	}
	for _, s := range states {
		m.Changes.WithLabelValues(s.String())
	}
	m.set(Closed)
	return m
}

var states = []State{Closed, HalfOpen, Open}

// Collectors returns the collectors to register.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.State, m.Changes, m.Failures}
}

func (m *Metrics) set(now State) {
	for _, s := range states {
		v := 0.0
		if s == now {
			v = 1
		}
		m.State.WithLabelValues(s.String()).Set(v)
	}
}
