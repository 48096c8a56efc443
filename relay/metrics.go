package relay

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
)

type metrics struct {
	published       *prometheus.CounterVec
	publishSeconds  prometheus.Histogram
	commitSeconds   prometheus.Histogram
	failures        *prometheus.CounterVec
	repeated        prometheus.Counter
	late            prometheus.Counter
	found           [byBackfill + 1]prometheus.Counter
	swept           [sweptCauses]prometheus.Counter
	gaps            prometheus.Counter
	proofs          *prometheus.CounterVec
	proofReads      prometheus.Counter
	rowsIgnored     prometheus.Counter
	rowsUndecodable prometheus.Counter
	readerRestarts  prometheus.Counter
	readerErrors    prometheus.Counter
	dataLoss        prometheus.Counter

	publishingMetrics
	readBack readBackMetrics

	tailQueries [readAgain + 1]prometheus.Counter
	tailRows    prometheus.Counter
	tailAgain   prometheus.Counter
	tailLeft    prometheus.Counter
	tailErrors  prometheus.Counter
	tailSeconds prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
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
		repeated:        counter("outbox_relay_events_repeated_total", "Log rows that the sweep found handed on before; they are not published again. With the tail on that is nearly all of them."),
		late:            counter("outbox_relay_events_late_total", "Events published behind a later one of their aggregate."),
		gaps:            counter("outbox_relay_sequence_gaps_total", "Events published though the one before them in their aggregate was nowhere to be found."),
		rowsIgnored:     counter("outbox_relay_rows_ignored_total", "Log rows that add no event, such as deletes."),
		rowsUndecodable: counter("outbox_relay_rows_undecodable_total", "Log rows that should be events and cannot be read as such, each time that the sweep reads them."),
		readerRestarts:  counter("outbox_relay_reader_restarts_total", "Times that the CDC reader ended and was started again."),
		readerErrors:    counter("outbox_relay_reader_errors_total", "Errors that the CDC reader met and retried."),
		dataLoss:        counter("outbox_relay_broker_data_loss_total", "Times that a partition no longer had records which it had acknowledged."),
	}
	m.registerTail(reg)
	m.swept = newSwept(reg)
	m.readBack = newReadBackMetrics(reg)
	m.publishingMetrics = newPublishingMetrics(reg)
	m.proofs = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "outbox_relay_predecessor_proofs_total",
		Help: "Earlier events that were looked for in their topics, because nothing was remembered of their aggregate: published, unpublished (they became visible late, and are published), or unproven (their topic may not be read; they count as published).",
	}, []string{"result"})
	m.proofReads = counter("outbox_relay_predecessor_proof_reads_total", "Requests to the broker that these lookups cost.")
	for _, result := range []proofResult{proofPublished, proofUnpublished, proofUnproven} {
		m.proofs.WithLabelValues(string(result))
	}
	reg.MustRegister(m.proofs, m.proofReads)
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
	reg.MustRegister(found, m.published, m.publishSeconds, m.commitSeconds, m.failures, m.repeated, m.late, m.gaps,
		m.rowsIgnored, m.rowsUndecodable, m.readerRestarts, m.readerErrors, m.dataLoss)
	return m
}

// foundBy are the values of the label by, and of the header ce_captured.
var foundBy = [...]string{
	bySweep: outbox.CapturedSweep, byTail: outbox.CapturedTail, byKey: outbox.CapturedKey, byBackfill: outbox.CapturedBackfill,
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// registerState registers the gauges that are read from r when asked for.
func registerState(reg prometheus.Registerer, r *Relay) {
	gauge := func(name, help string, f func() float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f))
	}
	gauge("outbox_relay_in_flight_records", "Events read and not yet acknowledged.", func() float64 { return float64(r.publisher.Load().state().open) })
	gauge("outbox_relay_in_flight_bytes", "Their size.", func() float64 { return float64(r.publisher.Load().state().bytes) })
	gauge("outbox_relay_dedup_fresh_events", "Events that are out and whose rows the sweep has still to read, with the bound outbox_relay_dedup_fresh_limit.", func() float64 {
		return float64(r.publisher.Load().state().fresh)
	})
	gauge("outbox_relay_dedup_fresh_limit", "How many such events there may be; beyond it the tail waits for the sweep.", func() float64 {
		return float64(r.cfg.MaxRememberedEvents)
	})
	gauge("outbox_relay_dedup_shown_events", "Events that are remembered though the sweep has read their rows, because a row may be there twice.", func() float64 {
		return float64(r.publisher.Load().state().shown)
	})
	gauge("outbox_relay_dedup_aggregates", "Idle aggregates whose next sequence number is remembered.", func() float64 {
		return float64(r.publisher.Load().state().aggregates)
	})
	gauge("outbox_relay_dead_letters_open", "Dead letters that are not settled.", func() float64 { return float64(r.publisher.Load().state().letters) })
	gauge("outbox_relay_dead_letters_spilled", "Those of them that an open breaker made, with the bound outbox_relay_spill_limit.", func() float64 {
		return float64(r.publisher.Load().state().spilled)
	})
	gauge("outbox_relay_spill_limit", "How many dead letters an open breaker makes before the relay holds.", func() float64 { return float64(max(r.cfg.SpillLimit, 0)) })
	gauge("outbox_relay_blocked_aggregates", "Aggregates whose later events wait behind a dead letter.", func() float64 { return float64(r.publisher.Load().state().parked) })
	for _, strategy := range dlq.Strategies {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "outbox_relay_dead_letters_waiting", ConstLabels: prometheus.Labels{"strategy": strategy},
			Help: "Dead letters that are not settled, by the strategy under which they wait; manual are all those that an operator has to decide about.",
		}, func() float64 { return float64(r.publisher.Load().waitingUnder(strategy)) }))
	}
	gauge("outbox_relay_other_instances", "Other live processes that run a relay of this name on this table, as its heartbeat sees them: there may be none, or every event is published twice.", func() float64 {
		return float64(len(r.others.alive()))
	})
	gauge("outbox_relay_sequence_gap_aggregates", "Aggregates that wait beside their streams for an earlier event, or for the proof that it is published.", func() float64 {
		return float64(r.aside.Load().state().Count)
	})
	gauge("outbox_relay_aggregates_held", "Aggregates held because an event of theirs cannot be published.", func() float64 {
		return float64(r.publisher.Load().state().held)
	})
	gauge("outbox_relay_topics_stalled", "Topics with a partition that acknowledges nothing while others do.", func() float64 { return float64(len(r.publisher.Load().stalledTopics())) })
	gauge("outbox_relay_partitions_stalled", "Partitions that acknowledge nothing while others do.", func() float64 { return float64(len(r.publisher.Load().state().stalled)) })
	gauge("outbox_relay_streams_held", "Streams held because of a row that cannot be read.", func() float64 { return float64(r.streams.HeldCount()) })
	gauge("outbox_relay_oldest_unacknowledged_seconds", "Age, since the sweep read it or the producer has it, of the oldest change that is not acknowledged.", func() float64 {
		return r.oldestAge(time.Now()).Seconds()
	})
	gauge("outbox_relay_checkpoint_age_seconds", "How far the last stream's position is behind now, the confidence window included.", func() float64 {
		return r.streams.PositionAge(time.Now()).Seconds()
	})
	gauge("outbox_relay_tail_streams", "CDC streams that the tail reads.", func() float64 { return float64(r.tail.Load().status().Streams) })
	gauge("outbox_relay_tail_interval_seconds", "Mean wait between two readings of a group of streams by the tail.", func() float64 {
		return r.tail.Load().status().Interval.Seconds()
	})
	gauge("outbox_relay_tail_waiting_aggregates", "Aggregates of which the tail misses an event before one that it saw.", func() float64 {
		return float64(r.tail.Load().status().Waiting)
	})
	gauge("outbox_relay_tail_paused", "1 while the tail waits for the sweep because too many events are out before it.", func() float64 {
		if r.tail.Load().status().Paused {
			return 1
		}
		return 0
	})
	gauge("outbox_relay_streams", "CDC streams being read.", func() float64 { return float64(r.streams.Count()) })
}
