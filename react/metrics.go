package react

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics have the label rule, of which there are at most MaxRules.
type metrics struct {
	records, deliveries, errors, undecided, repeats, unsaved *prometheus.CounterVec
	waiting, oldest, stuck                                   *prometheus.GaugeVec
	seconds                                                  *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	count := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"rule"}, labels...))
	}
	level := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"rule"})
	}
	m := &metrics{
		records:    count("react_records_total", "Records that a rule read."),
		deliveries: count("react_deliveries_total", "Deliveries that ended.", "result"),
		errors:     count("react_attempt_errors_total", "Attempts to deliver that failed."),
		undecided:  count("react_undecided_total", "Events for which a rule's expression could not be evaluated; each is a failed delivery too."),
		repeats:    count("react_repeats_total", "Deliveries that somebody asked to repeat and that were begun."),
		unsaved:    count("react_store_errors_total", "Reads and writes of deliveries that failed and are tried again."),
		waiting:    level("react_waiting", "Events that wait in memory, those that are tried again included."),
		oldest:     level("react_oldest_waiting_seconds", "How long the event has waited in memory that has waited longest."),
		stuck:      level("react_stuck", "Calls of a plugin that are past their time and have not returned."),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "react_attempt_seconds", Help: "How long attempts to deliver took.", Buckets: []float64{0.001, 0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"rule"}),
	}
	for _, c := range []prometheus.Collector{m.records, m.deliveries, m.errors, m.undecided, m.repeats, m.unsaved, m.waiting, m.oldest, m.stuck, m.seconds} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register react metrics: %w", err)
		}
	}
	return m, nil
}

// ruleMetrics are those of one rule. They begin at zero.
type ruleMetrics struct {
	records, delivered, failed, errors, undecided, repeats, unsaved prometheus.Counter
	waiting, oldest, stuck                                          prometheus.Gauge
	seconds                                                         prometheus.Observer
}

func (m *metrics) of(rule string) *ruleMetrics {
	return &ruleMetrics{
		records: m.records.WithLabelValues(rule), delivered: m.deliveries.WithLabelValues(rule, "delivered"), failed: m.deliveries.WithLabelValues(rule, "failed"),
		errors: m.errors.WithLabelValues(rule), undecided: m.undecided.WithLabelValues(rule), repeats: m.repeats.WithLabelValues(rule),
		unsaved: m.unsaved.WithLabelValues(rule), waiting: m.waiting.WithLabelValues(rule), oldest: m.oldest.WithLabelValues(rule),
		stuck: m.stuck.WithLabelValues(rule), seconds: m.seconds.WithLabelValues(rule),
	}
}
