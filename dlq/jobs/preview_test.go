package jobs

import (
	"fmt"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

func TestPreview_NamesAggregatesAndTime(t *testing.T) {
	t.Parallel()
	b := setupJobs(t)
	ctx := t.Context()
	var deadLetters []dlq.DeadLetter
	for i := range 12 {
		l := testDeadLetter(fmt.Sprintf("a%02d", i), 1)
		l.Status = dlq.Pending
		b.mustWrite(t, l)
		deadLetters = append(deadLetters, *l)
		if i == 7 {
			for seq := range 3 {
				f := testDeadLetter("a07", int64(seq+2))
				f.Status = dlq.Blocked
				b.mustWrite(t, f)
				deadLetters = append(deadLetters, *f)
			}
		}
	}
	p, may, err := b.jobs.Preview(ctx, &Spec{Action: dlq.ActionReplay}, deadLetters)
	if err != nil || p.DeadLetters != 12 || len(may) != 12 || p.Followers != 3 || p.Refused[dlq.Blocked] != 3 {
		t.Fatalf("Preview() = %+v, %v", p, err)
	}
	if len(p.Sample) != PreviewSample || p.Sample[0] != (PreviewAggregate{testTable, "a07", 1, 3}) {
		t.Errorf("the sample is %+v, want the aggregate first behind which most waits", p.Sample)
	}
	if err := b.jobs.Estimate(ctx, &p, 0); err != nil || p.Estimated != 12.0/AssumedRate || p.EstimatedBy != "default rate" {
		t.Errorf("nothing to go by: %v %q, %v", p.Estimated, p.EstimatedBy, err)
	}
	if err := b.jobs.Estimate(ctx, &p, 4); err != nil || p.Estimated != 3 || p.EstimatedBy != "rate" {
		t.Errorf("12 at 4 a second: %v s by %q, %v", p.Estimated, p.EstimatedBy, err)
	}
	j := b.mustCreateJob(t, Spec{Action: dlq.ActionReplay})
	if _, err := b.jobs.changeJob(ctx, j.ID, "test", func(j *Job) (bool, error) {
		j.State, j.Started = Done, time.Now().Add(-time.Minute)
		j.Finished = j.Started.Add(20 * time.Second)
		j.Progress.Done = 10
		return true, nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, rate := range []float64{0, 4} {
		if err := b.jobs.Estimate(ctx, &p, rate); err != nil || p.Estimated < 23.9 || p.Estimated > 24.1 || p.EstimatedBy != "jobs before" {
			t.Errorf("10 took 20 s: 12 take %v s by %q, %v", p.Estimated, p.EstimatedBy, err)
		}
	}
	for _, n := range []int{101, 1_000_000} {
		p := Preview{Action: dlq.ActionReplay, DeadLetters: n}
		if err := b.jobs.Estimate(ctx, &p, 0); err != nil || p.Estimated != float64(n)/AssumedRate || p.EstimatedBy != "default rate" {
			t.Errorf("10 took 20 s: %d take %v s by %q, %v, want that of no comparable job", n, p.Estimated, p.EstimatedBy, err)
		}
	}
}
