package relay

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
)

// engineMetrics are those of publishing.
type engineMetrics struct {
	published      *prometheus.CounterVec
	publishSeconds prometheus.Histogram
	commitSeconds  prometheus.Histogram
	failures       *prometheus.CounterVec
	repeated       prometheus.Counter
	late           prometheus.Counter
	found          [byBackfill + 1]prometheus.Counter
	swept          [sweptCauses]prometheus.Counter
	tailLeft       prometheus.Counter
	dataLoss       prometheus.Counter

	publishingMetrics
}

// newEngineMetrics registers the metrics of publishing.
func newEngineMetrics(reg prometheus.Registerer) *engineMetrics {
	m := &engineMetrics{
		published: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_relay_events_published_total", Help: "Events acknowledged by the broker.",
		}, []string{"topic"}),
		publishSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "outbox_relay_publish_duration_seconds", Help: "From handing an event to the producer to its acknowledgement.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 17),
		}),
		commitSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "outbox_relay_commit_to_publish_seconds", Help: "From the write's timestamp to the acknowledgement.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 22),
		}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_relay_publish_failures_total", Help: "Attempts to publish that failed, by error class; the producer's own retries are not counted.",
		}, []string{"class"}),
		repeated: counter("outbox_relay_events_repeated_total", "Log rows that the sweep found handed on before; they are not published again. With the tail on that is nearly all of them."),
		late:     counter("outbox_relay_events_late_total", "Events published behind a later one of their aggregate."),
		dataLoss: counter("outbox_relay_broker_data_loss_total", "Times that a partition no longer had records which it had acknowledged."),
		tailLeft: counter("outbox_relay_tail_left_total", "Events that the tail left to the sweep, not being sure of what is before them."),
	}
	m.swept = newSwept(reg)
	m.publishingMetrics = newPublishingMetrics(reg)
	for c := range failure.Permanent + 1 {
		m.failures.WithLabelValues(c.String())
	}
	m.failures.WithLabelValues(failure.Fatal.String())
	found := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "outbox_relay_events_found_total",
		Help: "Events handed on, by who found them first: the tail, the sweep, a look-up by key because a later one of their aggregate came first, or a backfill.",
	}, []string{"by"})
	for by, name := range foundBy {
		m.found[by] = found.WithLabelValues(name)
	}
	reg.MustRegister(found, m.published, m.publishSeconds, m.commitSeconds, m.failures, m.repeated, m.late, m.tailLeft, m.dataLoss)
	return m
}

// foundBy are the values of the label by, and of the header ce_captured.
var foundBy = [...]string{
	bySweep: outbox.CapturedSweep, byTail: outbox.CapturedTail, byKey: outbox.CapturedKey, byBackfill: outbox.CapturedBackfill,
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}
