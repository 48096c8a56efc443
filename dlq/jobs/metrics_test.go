package jobs

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// The metrics contain the open jobs, the results of this runner's dead letters, and the
// finished jobs.
func TestRunner_Metrics(t *testing.T) {
	t.Parallel()
	b := setupJobs(t)
	ids := b.writeMany(t, 5, nil)
	cfg := quick("r")
	cfg.Registerer = prometheus.NewRegistry()
	r := NewRunner(b.jobs, cfg)
	b.relay(t, func(l *dlq.DeadLetter) string {
		if l.EventID == ids[0] {
			return "refused"
		}
		return ""
	})
	j := b.mustCreateJob(t, Spec{Action: dlq.ActionReplay, IDs: append(ids, b.writeMany(t, 1, func(_ int, l *dlq.DeadLetter) { l.Status = dlq.Blocked })...)})
	waiting := b.mustCreateJob(t, Spec{Action: dlq.ActionPurge}) // which this runner cannot run
	jobs, err := b.jobs.ListOpen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r.metrics.setOpen(jobs)
	if n := testutil.ToFloat64(r.metrics.open.WithLabelValues("replay", "queued")); n != 1 {
		t.Errorf("%v replays are queued, want 1", n)
	}
	if _, err := r.RunJob(t.Context(), j.ID); err != nil {
		t.Fatal(err)
	}
	for outcome, want := range map[string]float64{outcomeChanged: 5, outcomeSkipped: 1, outcomeReplayed: 4, outcomeFailed: 1, outcomeOvertaken: 0} {
		if got := testutil.ToFloat64(r.metrics.items.WithLabelValues("replay", outcome)); got != want {
			t.Errorf("%s: %v dead letters, want %v", outcome, got, want)
		}
	}
	if n := testutil.ToFloat64(r.metrics.finished.WithLabelValues("replay", "done")); n != 1 {
		t.Errorf("%v replays are done, want 1", n)
	}
	if n := testutil.CollectAndCount(r.metrics.duration, "outbox_dead_letter_job_duration_seconds"); n != len(Actions) {
		t.Errorf("%d histograms of durations, want one for each action", n)
	}
	if jobs, err = b.jobs.ListOpen(t.Context()); err != nil || len(jobs) != 1 || jobs[0].ID != waiting.ID {
		t.Fatalf("open jobs: %v, %v", jobs, err)
	}
	r.metrics.setOpen(jobs)
	for state, want := range map[string]float64{"replay/queued": 0, "purge/queued": 1} {
		action, st, _ := strings.Cut(state, "/")
		if got := testutil.ToFloat64(r.metrics.open.WithLabelValues(action, st)); got != want {
			t.Errorf("%s: %v, want %v", state, got, want)
		}
	}
}
