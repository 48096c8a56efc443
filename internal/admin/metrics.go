package admin

import (
	"fmt"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/latency"
	"github.com/scylla-outbox/scylla-outbox/internal/trace"
)

// metrics are the server's. All labels are bounded.
type metrics struct {
	requests  *prometheus.HistogramVec
	listeners prometheus.Gauge
	dropped   prometheus.Counter
	unaudited prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		requests: latency.Requests("admin"),
		listeners: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "outbox_admin_listeners", Help: "Open event streams.",
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outbox_admin_listeners_dropped_total", Help: "Event streams closed because the client read too slowly.",
		}),
		unaudited: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outbox_admin_audit_unfinished_total", Help: "Changes whose result could not be written to the audit trail; their entries stay intended.",
		}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.listeners, m.dropped, m.unaudited} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register admin API metrics: %w", err)
		}
	}
	return m, nil
}

// observe measures each operation.
func (m *metrics) observe(ctx huma.Context, next func(huma.Context)) {
	start := time.Now()
	next(ctx)
	latency.Observe(m.requests.WithLabelValues(ctx.Operation().OperationID, strconv.Itoa(ctx.Status())), time.Since(start), trace.Exemplar(ctx.Context()))
}
