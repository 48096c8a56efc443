package verify

import "github.com/prometheus/client_golang/prometheus"

type verifierMetrics struct {
	missing, until, lastPass, duration *prometheus.GaugeVec
	rows, repaired, errors             *prometheus.CounterVec
}

// setLastPass sets the metrics of the last full pass over a table, if there was one.
func (m *verifierMetrics) setLastPass(table string, p *PassState) {
	if !p.LastPass.IsZero() {
		m.until.WithLabelValues(table).Set(float64(p.Verified.UnixMicro()) / 1e6)
		m.lastPass.WithLabelValues(table).Set(float64(p.LastPass.UnixMicro()) / 1e6)
	}
}

func newVerifierMetrics(reg prometheus.Registerer) *verifierMetrics {
	gauge := func(name, help string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"table"})
		reg.MustRegister(g)
		return g
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"table"}, labels...))
		reg.MustRegister(c)
		return c
	}
	return &verifierMetrics{
		missing:  gauge("outbox_verify_missing", "Events of the outbox that are in no topic and have no dead letter, confirmed; 10000 means at least so many."),
		until:    gauge("outbox_verify_verified_until_timestamp_seconds", "Write time up to which the last full pass checked all rows."),
		lastPass: gauge("outbox_verify_last_full_pass_timestamp_seconds", "When the last full pass ended."),
		duration: gauge("outbox_verify_pass_duration_seconds", "How long the last full pass took."),
		rows:     counter("outbox_verify_rows_total", "Rows read, by result: published, pending, unverifiable, dead_letter, missing.", "result"),
		repaired: counter("outbox_verify_repaired_total", "Missing events that were published by a repair and then found in their topics."),
		errors:   counter("outbox_verify_errors_total", "Passes that failed."),
	}
}

// forget removes the metrics of a table that cannot be verified.
func (m *verifierMetrics) forget(table string) {
	for _, g := range []*prometheus.GaugeVec{m.missing, m.until, m.lastPass, m.duration} {
		g.DeleteLabelValues(table)
	}
}
