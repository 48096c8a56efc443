package relay

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/capture"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/readback"
)

type metrics struct {
	*publish.Metrics
	capture        *capture.Metrics
	proof          *readback.ProofMetrics
	readBack       *readback.Metrics
	readerRestarts prometheus.Counter
	logGaps        prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		readerRestarts: publish.Counter("outbox_relay_reader_restarts_total", "Restarts of the CDC reader."),
		logGaps:        publish.Counter("outbox_relay_cdc_log_gaps_total", "Times in which the CDC log may lack events, because the table was altered: CDC may have been off, or the log dropped."),
	}
	m.Metrics = publish.NewMetrics(reg)
	m.capture = capture.NewMetrics(reg)
	m.readBack = readback.NewMetrics(reg)
	m.proof = readback.NewProofMetrics(reg)
	reg.MustRegister(m.readerRestarts, m.logGaps)
	return m
}

// registerState registers the gauges that are computed from r at each scrape.
func registerState(reg prometheus.Registerer, r *Relay) {
	gauge := func(name, help string, f func() float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f))
	}
	gauge("outbox_relay_clock_ahead_seconds", "How far the clock of this host is ahead of the database's; negative if it is behind.", func() float64 { return r.cfg.clock.Ahead().Seconds() })
	gauge("outbox_relay_in_flight_records", "Events read and not yet acknowledged.", func() float64 { return float64(r.publisher.Load().State().Open) })
	gauge("outbox_relay_in_flight_bytes", "Size of the events that are read and not yet acknowledged.", func() float64 { return float64(r.publisher.Load().State().Bytes) })
	gauge("outbox_relay_dedup_fresh_events", "Published events whose rows the sweep reader has not read yet; limited by outbox_relay_dedup_fresh_limit.", func() float64 {
		return float64(r.publisher.Load().State().Fresh)
	})
	gauge("outbox_relay_dedup_fresh_limit", "Maximum of outbox_relay_dedup_fresh_events; at the limit the tail reader waits for the sweep reader.", func() float64 {
		return float64(r.cfg.place().share.Events())
	})
	gauge("outbox_relay_dedup_shown_events", "Events in the dedup index whose rows the sweep reader has read, because a row may occur twice.", func() float64 {
		return float64(r.publisher.Load().State().Shown)
	})
	gauge("outbox_relay_dedup_aggregates", "Idle aggregates whose next sequence number is in memory.", func() float64 {
		return float64(r.publisher.Load().State().Aggregates)
	})
	gauge("outbox_relay_dead_letters_open", "Open dead letters.", func() float64 { return float64(r.publisher.Load().State().DeadLetters) })
	gauge("outbox_relay_dead_letters_spilled", "Open dead letters written while the breaker was open; limited by outbox_relay_spill_limit.", func() float64 {
		return float64(r.publisher.Load().State().Spilled)
	})
	gauge("outbox_relay_spill_limit", "Maximum of outbox_relay_dead_letters_spilled; at the limit the relay holds.", func() float64 { return float64(max(r.cfg.SpillLimit, 0)) })
	gauge("outbox_relay_blocked_aggregates", "Aggregates with a blocked event: one that waits behind a dead letter.", func() float64 { return float64(r.publisher.Load().State().Blocked) })
	for _, strategy := range dlq.Strategies {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "outbox_relay_dead_letters_waiting", ConstLabels: prometheus.Labels{"strategy": strategy},
			Help: "Open dead letters by strategy; manual counts all that need a decision of an operator.",
		}, func() float64 { return float64(r.publisher.Load().WaitingUnder(strategy)) }))
	}
	gauge("outbox_relay_sequence_gap_aggregates", "Aggregates that wait for an earlier event, or for the proof that it is published, while their streams proceed.", func() float64 {
		return float64(r.sweep.Load().Waiting().Count)
	})
	gauge("outbox_relay_aggregates_held", "Aggregates held by an event that cannot be published.", func() float64 {
		return float64(r.publisher.Load().State().Held)
	})
	gauge("outbox_relay_topics_stalled", "Topics with a partition that acknowledges nothing while others do.", func() float64 { return float64(len(r.publisher.Load().StalledTopics())) })
	gauge("outbox_relay_partitions_stalled", "Partitions that acknowledge nothing while others do.", func() float64 { return float64(len(r.publisher.Load().State().Stalled)) })
	gauge("outbox_relay_streams_held", "Streams held by an unreadable row.", func() float64 { return float64(r.streams.HeldCount()) })
	gauge("outbox_relay_oldest_unacknowledged_seconds", "Age of the oldest unacknowledged change since the sweep reader read it or the producer has it.", func() float64 {
		return r.oldestAge(time.Now()).Seconds()
	})
	gauge("outbox_relay_checkpoint_age_seconds", "Lag of the stream that is furthest behind, including the confidence window.", func() float64 {
		return r.streams.PositionAge(r.cfg.clock.Now()).Seconds()
	})
	gauge("outbox_relay_tail_streams", "CDC streams that the tail reader reads.", func() float64 { return float64(r.tail.Load().Status().Streams) })
	gauge("outbox_relay_tail_interval_seconds", "Mean interval between two reads of a group of streams by the tail reader.", func() float64 {
		return r.tail.Load().Status().Interval.Seconds()
	})
	gauge("outbox_relay_tail_waiting_aggregates", "Aggregates with an event that the tail reader holds because an earlier one is missing.", func() float64 {
		return float64(r.tail.Load().Status().Waiting)
	})
	gauge("outbox_relay_tail_paused", "1 while the tail reader waits for the sweep reader because it published too many events ahead of it.", func() float64 {
		if r.tail.Load().Status().Paused {
			return 1
		}
		return 0
	})
	gauge("outbox_relay_streams", "CDC streams being read.", func() float64 { return float64(r.streams.Count()) })
}
