package engine

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/latency"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/queue"
)

// metrics have the label subscription. The levels are read when they are collected.
type metrics struct {
	received, acknowledged, failed, expired, deadLettered, skipped, notHandedOver *prometheus.CounterVec
	settling, processing, pushing                                                 *prometheus.HistogramVec
	stuck                                                                         *prometheus.GaugeVec
}

// groupMetrics are the metrics of one subscription.
type groupMetrics struct {
	received, acknowledged, failed, expired, deadLettered, skipped, notHandedOver prometheus.Counter
	settling, processing                                                          prometheus.Observer

	all  *metrics
	name string
}

func newMetrics(reg prometheus.Registerer, e *Engine) (*metrics, error) {
	count := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"subscription"})
	}
	m := &metrics{
		received:      count("outbox_subscription_received_total", "Messages delivered to consumers, including repeated deliveries."),
		acknowledged:  count("outbox_subscription_acknowledged_total", "Confirmed acknowledgements."),
		failed:        count("outbox_subscription_nacked_total", "Deliveries that consumers returned as failed."),
		expired:       count("outbox_subscription_expired_total", "Leases that expired."),
		deadLettered:  count("outbox_subscription_dead_lettered_total", "Messages that became dead letters."),
		skipped:       count("outbox_subscription_skipped_total", "Records that were never delivered, because their topic had deleted them."),
		notHandedOver: count("outbox_subscription_leases_not_handed_over_total", "Leases that ended at a planned change of their owner, because the database did not store them in time or they were too large."),
		settling: prometheus.NewHistogramVec(latency.Opts("outbox_subscription_settle_duration_seconds", "Time from a request of a consumer to the confirmation of its actions.",
			[]float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}), []string{"subscription"}),
		processing: prometheus.NewHistogramVec(latency.Opts("outbox_subscription_receive_to_acknowledge_duration_seconds", "Time from the delivery of a message to its confirmed acknowledgement.",
			[]float64{0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600}), []string{"subscription"}),
		pushing: prometheus.NewHistogramVec(latency.Opts("outbox_subscription_push_duration_seconds", "Duration of the calls of push delivery.",
			[]float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30}), []string{"subscription"}),
		stuck: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "outbox_subscription_push_stuck", Help: "Calls of push delivery that have not returned after their time-out.",
		}, []string{"subscription"}),
	}
	for _, c := range []prometheus.Collector{m.received, m.acknowledged, m.failed, m.expired, m.deadLettered, m.skipped, m.notHandedOver, m.settling, m.processing, m.pushing, m.stuck, &levels{e}} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) of(name string) *groupMetrics {
	return &groupMetrics{
		received: m.received.WithLabelValues(name), acknowledged: m.acknowledged.WithLabelValues(name), failed: m.failed.WithLabelValues(name),
		expired: m.expired.WithLabelValues(name), deadLettered: m.deadLettered.WithLabelValues(name), skipped: m.skipped.WithLabelValues(name), notHandedOver: m.notHandedOver.WithLabelValues(name),
		settling: m.settling.WithLabelValues(name), processing: m.processing.WithLabelValues(name),
		all: m, name: name,
	}
}

// remove removes the metrics of the subscription.
func (m *groupMetrics) remove() {
	all := m.all
	for _, v := range []*prometheus.CounterVec{all.received, all.acknowledged, all.failed, all.expired, all.deadLettered, all.skipped, all.notHandedOver} {
		v.DeleteLabelValues(m.name)
	}
	all.settling.DeleteLabelValues(m.name)
	all.processing.DeleteLabelValues(m.name)
	all.pushing.DeleteLabelValues(m.name)
	all.stuck.DeleteLabelValues(m.name)
}

// countSettled counts the results of a request. leased are the begins of the leases; an
// acknowledgement that is repeated has none, and is observed once.
func (m *groupMetrics) countSettled(actions []subscriptions.Settle, results []subscriptions.Result, began time.Time, leased []time.Time) {
	acks, nacks := 0, 0
	now := time.Now()
	for i := range results {
		if results[i].Code != subscriptions.CodeOK {
			continue
		}
		switch actions[i].Action {
		case subscriptions.ActionAck:
			acks++
			if !leased[i].IsZero() {
				m.processing.Observe(now.Sub(leased[i]).Seconds())
			}
		case subscriptions.ActionNack:
			nacks++
		default:
		}
	}
	m.acknowledged.Add(float64(acks))
	m.failed.Add(float64(nacks))
	m.settling.Observe(now.Sub(began).Seconds())
}

// levels collects the states of the partitions of this instance.
type levels struct{ e *Engine }

var (
	waitingDesc  = desc("outbox_subscription_waiting", "Messages in memory that wait for a delivery.")
	inFlightDesc = desc("outbox_subscription_in_flight", "Leased messages.")
	deferredDesc = desc("outbox_subscription_deferred", "Messages that wait for another delivery after a failure.")
	storedDesc   = desc("outbox_subscription_stored", "Messages stored in the database.")
	oldestDesc   = desc("outbox_subscription_oldest_unacknowledged_seconds", "Age of the oldest message that was read and is not settled.")
	lagDesc      = desc("outbox_subscription_lag", "Messages of the owned partitions that are not settled: waiting, leased, deferred and not read yet.")
	openDesc     = desc("outbox_subscription_push_suspended", "1 while the destination of push delivery is called by probes only, because its calls fail.")
	pausedDesc   = desc("outbox_subscription_paused", "1 while deliveries are paused.")
)

func desc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"subscription"}, nil)
}

// Describe implements prometheus.Collector.
func (l *levels) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{waitingDesc, inFlightDesc, deferredDesc, storedDesc, oldestDesc, lagDesc, pausedDesc, openDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (l *levels) Collect(out chan<- prometheus.Metric) {
	for _, g := range l.e.running() {
		var sum queue.Counts
		var oldest time.Time
		open := int64(0)
		for _, p := range g.ownedPartitions() {
			p.mu.Lock()
			if q := p.mu.q; q != nil && !p.mu.closed {
				c := q.Counts()
				sum.Waiting += c.Waiting
				sum.Leased += c.Leased
				sum.Deferred += c.Deferred
				sum.Stored += c.Stored
				open += lag(c, p.readLocked(), p.mu.end)
				if at := q.Oldest(); oldest.IsZero() || !at.IsZero() && at.Before(oldest) {
					oldest = at
				}
			}
			p.mu.Unlock()
		}
		age, paused, suspended := 0.0, 0.0, 0.0
		if !oldest.IsZero() {
			age = max(0, time.Since(oldest).Seconds())
		}
		if g.pusher.isSuspended() {
			suspended = 1
		}
		if g.resource.Load().Paused {
			paused = 1
		}
		for d, v := range map[*prometheus.Desc]float64{
			waitingDesc: float64(sum.Waiting), inFlightDesc: float64(sum.Leased), deferredDesc: float64(sum.Deferred), storedDesc: float64(sum.Stored),
			oldestDesc: age, lagDesc: float64(open), pausedDesc: paused, openDesc: suspended,
		} {
			out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, g.name)
		}
	}
}
