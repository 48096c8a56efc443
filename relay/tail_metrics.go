package relay

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
)

// readingKind is the trigger of a reading.
type readingKind uint8

const (
	// readAll: the interval has passed.
	readAll readingKind = iota
	// readHinted: a writer sent a hint.
	readHinted
	// readAgain: held rows can be submitted if no earlier row is found.
	readAgain
)

func (m *metrics) registerTail(reg prometheus.Registerer) {
	queries := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "outbox_relay_tail_queries_total", Help: "Queries of the tail, of all streams of a group (regular), of those with hints (hinted), or of those with rows that are held for their order (again).",
	}, []string{"kind"})
	m.tailQueries[readAll] = queries.WithLabelValues("regular")
	m.tailQueries[readHinted] = queries.WithLabelValues("hinted")
	m.tailQueries[readAgain] = queries.WithLabelValues("again")
	m.tailRows = publish.Counter("outbox_relay_tail_rows_total", "Log rows that the tail read for the first time.")
	m.tailAgain = publish.Counter("outbox_relay_tail_rows_reread_total", "Log rows that the tail read again, because readings overlap.")
	m.tailErrors = publish.Counter("outbox_relay_tail_errors_total", "Failed queries of the tail reader.")
	m.tailSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "outbox_relay_tail_query_seconds", Help: "Time from a query of the tail reader to the first row of the response.",
		Buckets: prometheus.ExponentialBuckets(0.00025, 2, 16),
	})
	reg.MustRegister(queries, m.tailRows, m.tailAgain, m.tailErrors, m.tailSeconds)
}

func (m *metrics) tailQuery(kind readingKind, r *reading) {
	m.tailQueries[kind].Add(float64(r.queries))
	m.tailRows.Add(float64(r.rows))
	m.tailAgain.Add(float64(r.again))
	m.tailSeconds.Observe(r.answered.Seconds())
}
