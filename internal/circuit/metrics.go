package circuit

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the metrics of a breaker. All labels are bounded and start at zero.
type Metrics struct {
	target   string
	State    *prometheus.GaugeVec
	Changes  *prometheus.CounterVec
	Failures prometheus.Counter
}

// NewMetrics returns the metrics of the breaker between a service and a target, such as
// "database". Their names begin with that of the service.
func NewMetrics(service, target string) *Metrics {
	name := "outbox_" + service + "_breaker"
	m := &Metrics{
		target: target,
		State: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: name + "_state", Help: "1 for the state of the breaker before the " + target + ", 0 for others.",
		}, []string{"state"}),
		Changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: name + "_changes_total", Help: "Changes of the breaker before the " + target + ", by the new state.",
		}, []string{"state"}),
		Failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: name + "_failures_total", Help: "Failed calls that the breaker before the " + target + " counts; what is sent together is one call.",
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
