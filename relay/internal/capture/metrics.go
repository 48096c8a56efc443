package capture

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/latency"
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
	// readWide: a slice of a reading that goes back by TailOverlap.
	readWide
)

// Metrics counts the queries, rows and errors of the readers.
type Metrics struct {
	Gaps            prometheus.Counter
	RowsUndecodable prometheus.Counter
	rowsIgnored     prometheus.Counter
	readerErrors    prometheus.Counter

	TailQueries *prometheus.CounterVec // by kind: regular, hinted, again
	tailQueries [readWide + 1]prometheus.Counter
	TailLeft    prometheus.Counter
	tailRows    prometheus.Counter
	tailAgain   prometheus.Counter
	tailErrors  prometheus.Counter
	tailSeconds prometheus.Histogram
}

// NewMetrics registers the metrics of the readers.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		Gaps:            publish.Counter("outbox_relay_sequence_gaps_total", "Events published although the previous event of their aggregate was not found."),
		rowsIgnored:     publish.Counter("outbox_relay_rows_ignored_total", "Log rows that add no event, such as deletes."),
		RowsUndecodable: publish.Counter("outbox_relay_rows_undecodable_total", "Log rows that cannot be decoded as events, counted at each read by the sweep reader."),
		readerErrors:    publish.Counter("outbox_relay_reader_errors_total", "Errors of the CDC reader that were retried."),
		TailLeft:        publish.Counter("outbox_relay_tail_left_total", "Events that the tail left to the sweep, not being sure of what is before them."),
	}
	m.TailQueries = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "outbox_relay_tail_queries_total", Help: "Queries of the tail, of all streams of a group (regular), of those with hints (hinted), or of those with rows that are held for their order (again).",
	}, []string{"kind"})
	m.tailQueries[readAll] = m.TailQueries.WithLabelValues("regular")
	m.tailQueries[readHinted] = m.TailQueries.WithLabelValues("hinted")
	m.tailQueries[readAgain] = m.TailQueries.WithLabelValues("again")
	m.tailQueries[readWide] = m.TailQueries.WithLabelValues("wide")
	m.tailRows = publish.Counter("outbox_relay_tail_rows_total", "Log rows that the tail read for the first time.")
	m.tailAgain = publish.Counter("outbox_relay_tail_rows_reread_total", "Log rows that the tail read again, because readings overlap.")
	m.tailErrors = publish.Counter("outbox_relay_tail_errors_total", "Failed queries of the tail reader.")
	m.tailSeconds = prometheus.NewHistogram(latency.Opts("outbox_relay_tail_query_duration_seconds", "Time from a query of the tail reader to the first row of the response.",
		prometheus.ExponentialBuckets(0.00025, 2, 16)))
	reg.MustRegister(m.Gaps, m.rowsIgnored, m.RowsUndecodable, m.readerErrors, m.TailLeft, m.TailQueries, m.tailRows, m.tailAgain, m.tailErrors, m.tailSeconds)
	return m
}

func (m *Metrics) tailQuery(kind readingKind, r *reading) {
	m.tailQueries[kind].Add(float64(r.queries))
	m.tailRows.Add(float64(r.rows))
	m.tailAgain.Add(float64(r.again))
	m.tailSeconds.Observe(r.answered.Seconds())
}
