package messages

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
)

// metrics are the service's. All labels are bounded and start at zero.
type metrics struct {
	results  *prometheus.CounterVec
	attempts *prometheus.CounterVec
}

// Results of a message, as the label result has them.
const (
	resultQueued      = "queued"
	resultScheduled   = "scheduled"
	resultReplayed    = "replayed"
	resultInvalid     = "invalid"
	resultQuota       = "quota"
	resultUnavailable = "unavailable"
	resultUnknown     = "unknown"
)

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		results: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_messages_received_total", Help: "Submitted messages, by result.",
		}, []string{"result"}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_messages_write_attempts_total", Help: "Attempts to store a message, by result.",
		}, []string{"result"}),
	}
	for _, r := range []string{resultQueued, resultScheduled, resultReplayed, resultInvalid, resultQuota, resultUnavailable, resultUnknown} {
		m.results.WithLabelValues(r)
	}
	for _, f := range cqlcode.Fates {
		m.attempts.WithLabelValues(f.String())
	}
	for _, c := range []prometheus.Collector{m.results, m.attempts} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register messages metrics: %w", err)
		}
	}
	return m, nil
}
