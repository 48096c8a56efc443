package orders

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
)

// Steps of a change, as the label step has them.
const (
	stepClaim  = "claim_key"
	stepBatch  = "batch"
	stepAppend = "append_event" // all statements of the Appender
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
	// swept is the time before which all events are in the rows of orders, in Unix milliseconds;
	// until it is known, the start of the process.
	swept atomic.Int64
}

func newMetrics(reg prometheus.Registerer, rowTTL time.Duration) (*metrics, error) {
	m := &metrics{
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_orders_write_attempts_total",
			Help: "Attempts of the steps of a change, by result.",
		}, []string{"step", "result"}),
		repairs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_orders_repairs_total",
			Help: "Incomplete changes that a reader or the sweep completed, by missing part.",
		}, []string{"repaired"}),
		unknown: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outbox_orders_unknown_outcomes_total",
			Help: "Requests answered with 503 with an unknown outcome.",
		}),
		lostRaces: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outbox_orders_lost_races_total",
			Help: "Changes that found the event of a concurrent change under their number.",
		}),
	}
	for _, step := range []string{stepClaim, stepBatch, stepAppend, stepApply} {
		for _, f := range cqlcode.Fates {
			m.attempts.WithLabelValues(step, f.String())
		}
	}
	m.repairs.WithLabelValues(repairOrder)
	m.repairs.WithLabelValues(repairEvent)
	m.swept.Store(time.Now().UnixMilli())
	overdue := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "outbox_orders_sweep_overdue_seconds",
		Help: "Time for which events are not swept that are older than half of the TTL of the outbox.",
	}, func() float64 { return max(0, time.Since(time.UnixMilli(m.swept.Load()))-rowTTL/2).Seconds() })
	for _, c := range []prometheus.Collector{m.attempts, m.repairs, m.unknown, m.lostRaces, overdue} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register orders metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) attempt(step string, f fate) { m.attempts.WithLabelValues(step, f.String()).Inc() }
