package relay

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/readback"
)

type metrics struct {
	*publish.Metrics
	gaps            prometheus.Counter
	proof           *readback.ProofMetrics
	rowsIgnored     prometheus.Counter
	rowsUndecodable prometheus.Counter
	readerRestarts  prometheus.Counter
	readerErrors    prometheus.Counter

	readBack *readback.Metrics

	tailQueries [readAgain + 1]prometheus.Counter
	tailRows    prometheus.Counter
	tailAgain   prometheus.Counter
	tailErrors  prometheus.Counter
	tailSeconds prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		gaps:            publish.Counter("outbox_relay_sequence_gaps_total", "Events published though the one before them in their aggregate was nowhere to be found."),
		rowsIgnored:     publish.Counter("outbox_relay_rows_ignored_total", "Log rows that add no event, such as deletes."),
		rowsUndecodable: publish.Counter("outbox_relay_rows_undecodable_total", "Log rows that should be events and cannot be read as such, each time that the sweep reads them."),
		readerRestarts:  publish.Counter("outbox_relay_reader_restarts_total", "Times that the CDC reader ended and was started again."),
		readerErrors:    publish.Counter("outbox_relay_reader_errors_total", "Errors that the CDC reader met and retried."),
	}
	m.Metrics = publish.NewMetrics(reg)
	m.registerTail(reg)
	m.readBack = readback.NewMetrics(reg)
	m.proof = readback.NewProofMetrics(reg)
	reg.MustRegister(m.gaps, m.rowsIgnored, m.rowsUndecodable, m.readerRestarts, m.readerErrors)
	return m
}

// registerState registers the gauges that are read from r when asked for.
func registerState(reg prometheus.Registerer, r *Relay) {
	gauge := func(name, help string, f func() float64) {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f))
	}
	gauge("outbox_relay_in_flight_records", "Events read and not yet acknowledged.", func() float64 { return float64(r.publisher.Load().State().Open) })
	gauge("outbox_relay_in_flight_bytes", "Their size.", func() float64 { return float64(r.publisher.Load().State().Bytes) })
	gauge("outbox_relay_dedup_fresh_events", "Events that are out and whose rows the sweep has still to read, with the bound outbox_relay_dedup_fresh_limit.", func() float64 {
		return float64(r.publisher.Load().State().Fresh)
	})
	gauge("outbox_relay_dedup_fresh_limit", "How many such events there may be; beyond it the tail waits for the sweep.", func() float64 {
		return float64(r.cfg.MaxRememberedEvents)
	})
	gauge("outbox_relay_dedup_shown_events", "Events that are remembered though the sweep has read their rows, because a row may be there twice.", func() float64 {
		return float64(r.publisher.Load().State().Shown)
	})
	gauge("outbox_relay_dedup_aggregates", "Idle aggregates whose next sequence number is remembered.", func() float64 {
		return float64(r.publisher.Load().State().Aggregates)
	})
	gauge("outbox_relay_dead_letters_open", "Dead letters that are not settled.", func() float64 { return float64(r.publisher.Load().State().DeadLetters) })
	gauge("outbox_relay_dead_letters_spilled", "Those of them that an open breaker made, with the bound outbox_relay_spill_limit.", func() float64 {
		return float64(r.publisher.Load().State().Spilled)
	})
	gauge("outbox_relay_spill_limit", "How many dead letters an open breaker makes before the relay holds.", func() float64 { return float64(max(r.cfg.SpillLimit, 0)) })
	gauge("outbox_relay_blocked_aggregates", "Aggregates whose later events wait behind a dead letter.", func() float64 { return float64(r.publisher.Load().State().Parked) })
	for _, strategy := range dlq.Strategies {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "outbox_relay_dead_letters_waiting", ConstLabels: prometheus.Labels{"strategy": strategy},
			Help: "Dead letters that are not settled, by the strategy under which they wait; manual are all those that an operator has to decide about.",
		}, func() float64 { return float64(r.publisher.Load().WaitingUnder(strategy)) }))
	}
	gauge("outbox_relay_other_instances", "Other live processes that run a relay of this name on this table, as its heartbeat sees them: there may be none, or every event is published twice.", func() float64 {
		return float64(len(r.others.alive()))
	})
	gauge("outbox_relay_sequence_gap_aggregates", "Aggregates that wait beside their streams for an earlier event, or for the proof that it is published.", func() float64 {
		return float64(r.aside.Load().state().Count)
	})
	gauge("outbox_relay_aggregates_held", "Aggregates held because an event of theirs cannot be published.", func() float64 {
		return float64(r.publisher.Load().State().Held)
	})
	gauge("outbox_relay_topics_stalled", "Topics with a partition that acknowledges nothing while others do.", func() float64 { return float64(len(r.publisher.Load().StalledTopics())) })
	gauge("outbox_relay_partitions_stalled", "Partitions that acknowledge nothing while others do.", func() float64 { return float64(len(r.publisher.Load().State().Stalled)) })
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
