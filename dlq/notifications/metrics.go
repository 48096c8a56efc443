package notifications

import (
	"math"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

type metrics struct {
	deadLetters                         *prometheus.GaugeVec
	resolution, oldest, blocked         prometheus.Gauge
	onDuty, backlogLimit, rateLimit     prometheus.Gauge
	resolutionLimit, blockedLimit, took prometheus.Gauge
	added, errors                       prometheus.Counter
	notices                             *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
		if reg != nil {
			reg.MustRegister(g)
		}
		return g
	}
	const duty = " NaN while another process is on duty."
	m := &metrics{
		deadLetters: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "outbox_dead_letters", Help: "Open dead letters by status, of all tables; none while another process is on duty.",
		}, []string{"status"}),
		resolution:      gauge("outbox_dead_letter_resolution_ratio", "Share of resolved dead letters among the ones that failed first between 25 hours and one hour ago; NaN for fewer than 20."+duty),
		oldest:          gauge("outbox_dead_letter_oldest_open_seconds", "Age of the oldest open dead letter."+duty),
		blocked:         gauge("outbox_dead_letter_oldest_blocked_seconds", "Age of the oldest blocked dead letter."+duty),
		onDuty:          gauge("outbox_notifications_on_duty", "1 while this process watches the dead letters for all."),
		took:            gauge("outbox_notifications_poll_duration_seconds", "Duration of the last poll of the dead letters."),
		backlogLimit:    gauge("outbox_dead_letter_backlog_limit", "notifications.max_open; -1 for off."),
		rateLimit:       gauge("outbox_dead_letter_ingestion_limit_per_second", "notifications.rate_per_minute, by the second; below 0 for off."),
		resolutionLimit: gauge("outbox_dead_letter_resolution_ratio_limit", "Share of resolved dead letters below which OutboxDeadLetterResolution fires; -1 for off."),
		blockedLimit:    gauge("outbox_dead_letter_blocked_limit_seconds", "notifications.blocked_age; -1 for off."),
		added: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outbox_dead_letter_ingested_total", Help: "Events that became dead letters while this process was on duty.",
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "outbox_notifications_poll_errors_total", Help: "Failed polls of the dead letters; retried at the next interval.",
		}),
		notices: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "outbox_notifications_raised_total", Help: "Notices, by rule, however many targets they are sent to."}, []string{"rule"}),
	}
	for _, r := range []dlq.Rule{dlq.RuleNew, dlq.RuleBacklog, dlq.RuleRate, dlq.RuleResolution, dlq.RuleBlocked, dlq.RuleOutage} {
		m.notices.WithLabelValues(string(r))
	}
	if reg != nil {
		reg.MustRegister(m.deadLetters, m.added, m.errors, m.notices)
	}
	m.off()
	return m
}

// off removes the values, for a process that is not on duty: its values are outdated.
func (m *metrics) off() {
	m.onDuty.Set(0)
	m.deadLetters.Reset()
	for _, g := range []prometheus.Gauge{m.resolution, m.oldest, m.blocked} {
		g.Set(math.NaN())
	}
}
