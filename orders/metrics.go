package orders

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sony/gobreaker/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
)

// Steps of a change, as the label step has them.
const (
	stepClaim  = "claim_key"
	stepBatch  = "batch"
	stepAppend = "append_event"
	stepSettle = "settle"
	stepApply  = "apply"
)

// Kinds of repair, as the label repaired has them.
const (
	repairOrder = "order"
	repairEvent = "event"
)

// metrics are the service's. All labels are bounded and start at zero.
type metrics struct {
	attempts  *prometheus.CounterVec
	repairs   *prometheus.CounterVec
	unknown   prometheus.Counter
	lostRaces prometheus.Counter
	requests  *prometheus.HistogramVec

	breakerState   prometheus.Gauge
	breakerChanges *prometheus.CounterVec
	shed           *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "orders_write_attempts_total",
			Help: "Attempts of the steps of a change, by what is known of their outcome.",
		}, []string{"step", "outcome"}),
		repairs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "orders_repairs_total",
			Help: "Halves of a change that a reader completed, by what was missing.",
		}, []string{"repaired"}),
		unknown: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "orders_unknown_outcomes_total",
			Help: "Requests answered with 503 whose change may be stored.",
		}),
		lostRaces: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "orders_lost_races_total",
			Help: "Conditional inserts of an event that found another's event in its place.",
		}),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "orders_http_request_duration_seconds",
			Help:    "Duration of HTTP requests, by operation and status code.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20},
		}, []string{"operation", "code"}),
	}
	m.breakerState = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "orders_breaker_state",
		Help: "The breaker before the database: 0 closed, 1 half-open, 2 open.",
	})
	m.breakerChanges = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "orders_breaker_changes_total",
		Help: "Changes of the breaker before the database, by the state it came to.",
	}, []string{"to"})
	m.shed = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "orders_shed_total",
		Help: "Requests refused with 429 because too many were there at once, by why.",
	}, []string{"reason"})
	for _, s := range []gobreaker.State{gobreaker.StateClosed, gobreaker.StateHalfOpen, gobreaker.StateOpen} {
		m.breakerChanges.WithLabelValues(s.String())
	}
	m.shed.WithLabelValues(shedFull)
	m.shed.WithLabelValues(shedWaited)
	for _, step := range []string{stepClaim, stepBatch, stepAppend, stepSettle, stepApply} {
		for _, f := range cqlcode.Fates {
			m.attempts.WithLabelValues(step, f.String())
		}
	}
	m.repairs.WithLabelValues(repairOrder)
	m.repairs.WithLabelValues(repairEvent)
	for _, c := range []prometheus.Collector{m.attempts, m.repairs, m.unknown, m.lostRaces, m.requests, m.breakerState, m.breakerChanges, m.shed} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register orders metrics: %w", err)
		}
	}
	return m, nil
}

// watch adds the gauges of what is in r.
func (m *metrics) watch(reg prometheus.Registerer, r *room) error {
	for _, g := range []prometheus.Collector{
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "orders_in_flight", Help: "Requests that are with the database.",
		}, func() float64 { return float64(len(r.places)) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "orders_waiting", Help: "Requests that wait for others to finish.",
		}, func() float64 { return float64(r.waiting.Load()) }),
	} {
		if err := reg.Register(g); err != nil {
			return fmt.Errorf("register orders metrics: %w", err)
		}
	}
	return nil
}

func (m *metrics) breaker(to gobreaker.State) {
	m.breakerState.Set(float64(to)) // closed 0, half-open 1, open 2
	m.breakerChanges.WithLabelValues(to.String()).Inc()
}

func (m *metrics) attempt(step string, f fate) { m.attempts.WithLabelValues(step, f.String()).Inc() }

func (m *metrics) request(operation, code string, took time.Duration) {
	m.requests.WithLabelValues(operation, code).Observe(took.Seconds())
}
