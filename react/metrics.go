package react

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// metrics have the labels rule, with at most MaxRules values, and plugin, the
// destination of the rule, which adds no further series.
type metrics struct {
	records, deliveries, errors, undecided, repeats, unsaved *prometheus.CounterVec
	waiting, oldest, stuck                                   *prometheus.GaugeVec
	seconds                                                  *prometheus.HistogramVec
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	count := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append([]string{"rule", "plugin"}, labels...))
	}
	level := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"rule", "plugin"})
	}
	m := &metrics{
		records:    count("outbox_react_records_total", "Records that a rule read."),
		deliveries: count("outbox_react_deliveries_total", "Deliveries that ended.", "result"),
		errors:     count("outbox_react_attempt_errors_total", "Attempts to deliver that failed."),
		undecided:  count("outbox_react_undecided_total", "Events for which a rule's expression could not be evaluated; each is a failed delivery too."),
		repeats:    count("outbox_react_repeats_total", "Started repeats of deliveries on request."),
		unsaved:    count("outbox_react_store_errors_total", "Failed reads and writes of deliveries; retried."),
		waiting:    level("outbox_react_waiting", "Events waiting in memory, including retries."),
		oldest:     level("outbox_react_oldest_waiting_seconds", "Age of the oldest event waiting in memory."),
		stuck:      level("outbox_react_stuck", "Calls of a plugin that are past their time and have not returned."),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "outbox_react_attempt_seconds", Help: "How long attempts to deliver took.", Buckets: []float64{0.001, 0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"rule", "plugin"}),
	}
	for _, c := range []prometheus.Collector{m.records, m.deliveries, m.errors, m.undecided, m.repeats, m.unsaved, m.waiting, m.oldest, m.stuck, m.seconds} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register react metrics: %w", err)
		}
	}
	return m, nil
}

// ruleMetrics are the metrics of one rule. They start at zero.
type ruleMetrics struct {
	records, delivered, failed, errors, undecided, repeats, unsaved prometheus.Counter
	waiting, oldest, stuck                                          prometheus.Gauge
	seconds                                                         prometheus.Observer
}

// value returns the value of a counter or gauge.
func value(m prometheus.Metric) float64 {
	var now dto.Metric
	if m.Write(&now) != nil {
		return 0 // metrics of this package always encode
	}
	return now.GetCounter().GetValue() + now.GetGauge().GetValue()
}

func (m *metrics) of(rule, plugin string) *ruleMetrics {
	return &ruleMetrics{
		records: m.records.WithLabelValues(rule, plugin), delivered: m.deliveries.WithLabelValues(rule, plugin, "delivered"), failed: m.deliveries.WithLabelValues(rule, plugin, "failed"),
		errors: m.errors.WithLabelValues(rule, plugin), undecided: m.undecided.WithLabelValues(rule, plugin), repeats: m.repeats.WithLabelValues(rule, plugin),
		unsaved: m.unsaved.WithLabelValues(rule, plugin), waiting: m.waiting.WithLabelValues(rule, plugin), oldest: m.oldest.WithLabelValues(rule, plugin),
		stuck: m.stuck.WithLabelValues(rule, plugin), seconds: m.seconds.WithLabelValues(rule, plugin),
	}
}
