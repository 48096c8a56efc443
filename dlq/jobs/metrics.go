package jobs

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/latency"
)

// metrics are the metrics of a Runner. Labels are actions, states and results, all
// bounded, and begin at zero.
type metrics struct {
	open     *prometheus.GaugeVec
	finished *prometheus.CounterVec
	items    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// The outcomes of dead letters of jobs. The results of a replay count in addition to
// changed, once they are known.
const (
	outcomeChanged   = "changed"
	outcomeSkipped   = "skipped"
	outcomeReplayed  = "replayed"
	outcomeFailed    = "failed_again"
	outcomeOvertaken = "overtaken"
)

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		open: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "outbox_dead_letter_jobs_open", Help: "Unfinished jobs, by action and state; every runner reports all of them.",
		}, []string{"action", "state"}),
		finished: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_dead_letter_jobs_finished_total", Help: "Jobs that this process finished, by action and state.",
		}, []string{"action", "state"}),
		items: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "outbox_dead_letter_job_items_total", Help: "Dead letters processed by jobs of this process, by action and result; the result of a replay counts once it is known.",
		}, []string{"action", "result"}),
		duration: prometheus.NewHistogramVec(latency.Opts("outbox_dead_letter_job_duration_seconds", "Duration of jobs from start to report, including pauses.",
			[]float64{.1, .5, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600}), []string{"action"}),
	}
	for _, a := range Actions {
		for _, st := range States {
			if st.Ended() {
				m.finished.WithLabelValues(string(a), string(st))
			}
		}
		outcomes := []string{outcomeChanged, outcomeSkipped}
		if a.Publishes() {
			outcomes = append(outcomes, outcomeReplayed, outcomeFailed, outcomeOvertaken)
		}
		for _, o := range outcomes {
			m.items.WithLabelValues(string(a), o)
		}
		m.duration.WithLabelValues(string(a))
	}
	m.setOpen(nil)
	if reg != nil {
		reg.MustRegister(m.open, m.finished, m.items, m.duration)
	}
	return m
}

// see shows the open jobs.
func (m *metrics) setOpen(jobs []*Job) {
	n := make(map[[2]string]int)
	for _, j := range jobs {
		if slices.Contains(Actions, j.Action) { // not of a later version
			n[[2]string{string(j.Action), string(j.State)}]++
		}
	}
	for _, a := range Actions {
		// A cancelled one is open until its report is final.
		for _, st := range []State{Queued, Running, Paused, Cancelled} {
			m.open.WithLabelValues(string(a), string(st)).Set(float64(n[[2]string{string(a), string(st)}]))
		}
	}
}

// countActed counts changed and skipped dead letters.
func (m *metrics) countActed(action dlq.Action, a acted) {
	m.items.WithLabelValues(string(action), outcomeChanged).Add(float64(a.Changed))
	m.items.WithLabelValues(string(action), outcomeSkipped).Add(float64(sumCounts(a.Skipped)))
}

// countReplays counts the results of replays.
func (m *metrics) countReplays(action dlq.Action, before, now followed) {
	m.items.WithLabelValues(string(action), outcomeReplayed).Add(float64(now.Replayed - before.Replayed))
	m.items.WithLabelValues(string(action), outcomeOvertaken).Add(float64(now.Overtaken - before.Overtaken))
	m.items.WithLabelValues(string(action), outcomeFailed).Add(float64(sumCounts(now.Failed) - sumCounts(before.Failed)))
}

// countEnded counts a job whose report is final.
func (m *metrics) countEnded(j *Job) {
	m.finished.WithLabelValues(string(j.Action), string(j.State)).Inc()
	m.duration.WithLabelValues(string(j.Action)).Observe(max(0, j.Finished.Sub(j.Started)).Round(time.Millisecond).Seconds())
}
