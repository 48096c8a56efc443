package publish

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/circuit"
	"github.com/scylla-outbox/scylla-outbox/internal/latency"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/chains"
)

// newDeadLetterMetrics creates the metrics of the breaker and of dead letters.
func (m *Metrics) newDeadLetterMetrics(reg prometheus.Registerer) {
	m.Breaker = circuit.NewMetrics("relay", "broker")
	m.deadLetters = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "outbox_relay_dead_letters_written_total", Help: "Events that became dead letters, by error class.",
	}, []string{"class"})
	m.deadLetterErrors = Counter("outbox_relay_dead_letter_errors_total", "Times that a dead letter could not be written; it is written later, and no checkpoint passes it before.")
	m.Replays = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "outbox_relay_dead_letter_replays_total",
		Help: "Replays of dead letters by the strategy under which they waited and how they ended: published, found (it was in its topic, or its row is another dead letter), failed, or called_off because the breaker opened.",
	}, []string{"strategy", "result"})
	m.DeadLetterSeconds = prometheus.NewHistogram(latency.Opts("outbox_relay_dead_letter_resolution_duration_seconds", "From an event's first failure to the end of the replay that published it.",
		[]float64{1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600, 7 * 24 * 3600, 30 * 24 * 3600}))
	m.CanaryStops = Counter("outbox_relay_dead_letter_canary_stops_total", "Times that the replay of equal dead letters was stopped because a canary died of the same error again.")
	for _, c := range []string{chains.ClassBreakerOpen, chains.ClassAttemptsUsed, chains.ClassTooLarge, chains.ClassTopicInvalid, chains.ClassTopicRefused, chains.ClassUndecodable, chains.ClassRefused, chains.ClassBehind, chains.ClassInterrupted} {
		m.deadLetters.WithLabelValues(c)
	}
	for _, s := range dlq.Strategies {
		for _, r := range []string{"published", "found", "failed", "called_off"} {
			m.Replays.WithLabelValues(s, r)
		}
	}
	reg.MustRegister(m.Breaker.Collectors()...)
	reg.MustRegister(m.deadLetters, m.deadLetterErrors, m.Replays, m.DeadLetterSeconds, m.CanaryStops)
}

// settled counts a replay that published its event or found it in its topic.
func (m *Metrics) settled(l *dlq.DeadLetter, result string) {
	m.Replays.WithLabelValues(strategyLabel(l.Strategy), result).Inc()
	m.DeadLetterSeconds.Observe(max(0, time.Since(l.FirstFailedAt)).Seconds())
}
