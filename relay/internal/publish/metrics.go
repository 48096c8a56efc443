package publish

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/circuit"
	"github.com/scylla-outbox/scylla-outbox/internal/latency"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/swept"
)

// Metrics contains the metrics of publishing.
type Metrics struct {
	Published                      *prometheus.CounterVec
	publishSeconds                 prometheus.Histogram
	CommitSeconds                  prometheus.Histogram
	Failures                       *prometheus.CounterVec
	Repeated                       prometheus.Counter
	Late                           prometheus.Counter
	Found                          [ByBackfill + 1]prometheus.Counter
	Swept                          [swept.Causes]prometheus.Counter
	dataLoss                       prometheus.Counter
	recreated                      *prometheus.CounterVec
	SequenceConflicts, IDConflicts prometheus.Counter

	// Of the breaker and of dead letters.
	Breaker           *circuit.Metrics
	deadLetters       *prometheus.CounterVec
	deadLetterErrors  prometheus.Counter
	Replays           *prometheus.CounterVec
	DeadLetterSeconds prometheus.Histogram
	CanaryStops       prometheus.Counter
}

// NewMetrics creates the metrics of publishing and registers them with reg.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		Published: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_relay_events_published_total", Help: "Events acknowledged by the broker.",
		}, []string{"topic"}),
		publishSeconds: prometheus.NewHistogram(latency.Opts("outbox_relay_publish_duration_seconds", "From handing an event to the producer to its acknowledgement.",
			prometheus.ExponentialBuckets(0.0005, 2, 17))),
		CommitSeconds: prometheus.NewHistogram(latency.Opts("outbox_relay_commit_to_publish_duration_seconds", "From the write's timestamp to the acknowledgement.",
			prometheus.ExponentialBuckets(0.0005, 2, 22))),
		Failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_relay_publish_failures_total", Help: "Attempts to publish that failed, by error class; the producer's own retries are not counted.",
		}, []string{"class"}),
		Repeated:          Counter("outbox_relay_events_repeated_total", "Log rows that the sweep found handed on before; they are not published again. With the tail on that is nearly all of them."),
		Late:              Counter("outbox_relay_events_late_total", "Events published behind a later one of their aggregate."),
		SequenceConflicts: Counter("outbox_relay_sequence_conflicts_total", "Numbers of aggregates that were given to a second event, or begin again, as after the database was restored."),
		IDConflicts:       Counter("outbox_relay_id_conflicts_total", "Events that are not published because another event has their id."),
		dataLoss:          Counter("outbox_relay_broker_data_loss_total", "Times that a partition no longer had records which it had acknowledged."),
		recreated: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_relay_topics_recreated_total", Help: "Topics that were found to be deleted and created again; earlier events are not in the new ones.",
		}, []string{"topic"}),
	}
	m.Swept = swept.NewMetrics(reg)
	m.newDeadLetterMetrics(reg)
	for c := range failure.Permanent + 1 {
		m.Failures.WithLabelValues(c.String())
	}
	m.Failures.WithLabelValues(failure.Fatal.String())
	found := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "outbox_relay_events_found_total",
		Help: "Events handed on, by who found them first: the tail, the sweep, a look-up by key because a later one of their aggregate came first, or a backfill.",
	}, []string{"by"})
	for by, name := range FoundBy {
		m.Found[by] = found.WithLabelValues(name)
	}
	reg.MustRegister(found, m.Published, m.publishSeconds, m.CommitSeconds, m.Failures, m.Repeated, m.Late, m.dataLoss, m.recreated, m.SequenceConflicts, m.IDConflicts)
	return m
}

// FoundBy contains the values of the label by and of the header outbox-captured.
var FoundBy = [...]string{
	BySweep: rows.CapturedSweep, ByTail: rows.CapturedTail, ByKey: rows.CapturedKey, ByBackfill: rows.CapturedBackfill,
}

// Counter returns a counter that is not registered.
func Counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}
