package jobs

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// redelivererFunc is a Redeliverer.
type redelivererFunc func(ctx context.Context, r *Redelivery, by dlq.Actor, seen func(Reading)) ([]gocql.UUID, error)

func (f redelivererFunc) Redeliver(ctx context.Context, r *Redelivery, by dlq.Actor, seen func(Reading)) ([]gocql.UUID, error) {
	return f(ctx, r, by, seen)
}

// ofMail is the specification of a redelivery.
func ofMail() Spec {
	return Spec{Action: dlq.ActionReplay, Redelivery: &Redelivery{Subscription: "mail", Slice: Slice{Key: "a"}}}
}

// redelivering returns a runner's configuration with a Redeliverer.
func redelivering(owner string, f redelivererFunc) RunnerConfig {
	c := quick(owner)
	c.Redeliverer = f
	return c
}

// A redelivery makes its dead letters, shows how far it is, stores their ids and replays them in
// order.
func TestRedelivery_PreparesAndReplays(t *testing.T) {
	t.Parallel()
	b := setupJobs(t)
	ids := b.writeMany(t, 5, nil)
	b.relay(t, func(*dlq.DeadLetter) string { return "" })
	reading, shown := Reading{Records: 120, Messages: 5, Written: 3}, make(chan struct{})
	var asked Redelivery
	var by dlq.Actor
	start(t, b.jobs, redelivering("r1", func(ctx context.Context, r *Redelivery, actor dlq.Actor, seen func(Reading)) ([]gocql.UUID, error) {
		asked, by = *r, actor
		seen(reading)
		select {
		case <-shown:
		case <-ctx.Done():
		}
		return append(ids, ids[0]), ctx.Err()
	}))
	spec := ofMail()
	spec.BatchSize = 2
	j := b.mustCreateJob(t, spec)
	if j.Redelivery.Until != j.CreatedAt() || spec.Redelivery.Until != (time.Time{}) {
		t.Errorf("the period ends at %s, want the creation at %s", j.Redelivery.Until, j.CreatedAt())
	}
	now := b.jobWhen(t, j.ID, "reading", func(j *Job) bool { return j.Progress.Reading != nil })
	if *now.Progress.Reading != reading || now.Progress.Total != 0 || now.State != Running {
		t.Errorf("while it reads the job is %s %+v", now.State, now.Progress)
	}
	close(shown)
	j = b.jobWhen(t, j.ID, "done", finished)
	want := Progress{Total: 5, Done: 5, Changed: 5, Replayed: 5, Reading: &reading}
	if j.State != Done || !reflect.DeepEqual(j.Progress, want) || !slices.Equal(j.IDs, ids) || !j.InOrder {
		t.Errorf("the report is %s %+v of %v, want %+v of %v", j.State, j.Progress, j.IDs, want, ids)
	}
	if !reflect.DeepEqual(asked, *j.Redelivery) || by.Name != eve.Name || by.Reason != eve.Reason || by.Job != j.ID {
		t.Errorf("asked were %+v by %+v", asked, by)
	}
	b.actedOnce(t, j.ID, 1, ids)
	p := Preview{Action: dlq.ActionReplay, DeadLetters: 5}
	if err := b.jobs.Estimate(t.Context(), &p, 0); err != nil || p.EstimatedBy != "default rate" {
		t.Errorf("a replay is estimated by %q, %v: that of a redelivery is the time of its consumer", p.EstimatedBy, err)
	}
}

// A runner that ends while it makes the dead letters leaves the job to another one, which makes
// them; a runner without topics does not take it.
func TestRedelivery_SurvivesItsRunner(t *testing.T) {
	t.Parallel()
	b := setupJobs(t)
	ids := b.writeMany(t, 3, nil)
	b.relay(t, func(*dlq.DeadLetter) string { return "" })
	j := b.mustCreateJob(t, ofMail())
	if _, err := NewRunner(b.jobs, quick("r0")).RunJob(t.Context(), j.ID); !errors.Is(err, errNoRedeliverer) {
		t.Errorf("without topics RunJob() = %v", err)
	}
	ctx, crash := context.WithCancel(t.Context())
	_, err := NewRunner(b.jobs, redelivering("r1", func(ctx context.Context, _ *Redelivery, _ dlq.Actor, seen func(Reading)) ([]gocql.UUID, error) {
		seen(Reading{Records: 3, Messages: 3, Written: 1})
		crash()
		return nil, context.Cause(ctx)
	})).RunJob(ctx, j.ID)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("RunJob() = %v", err)
	}
	if j = b.mustJob(t, j.ID); j.State != Running || len(j.IDs) > 0 {
		t.Fatalf("after the crash the job is %s with %v", j.State, j.IDs)
	}
	start(t, b.jobs, redelivering("r2", func(context.Context, *Redelivery, dlq.Actor, func(Reading)) ([]gocql.UUID, error) { return ids, nil }))
	if j = b.jobWhen(t, j.ID, "done", finished); j.State != Done || j.Progress.Replayed != 3 {
		t.Errorf("the report is %s %+v", j.State, j.Progress)
	}
	b.actedOnce(t, j.ID, 1, ids)
}

// A slice that is wrong fails the job, topics that cannot be read pause it, other errors are
// repeated, and a pause or a cancellation ends the work.
func TestRedelivery_Ends(t *testing.T) {
	t.Parallel()
	b := setupJobs(t)
	ids := b.writeMany(t, 2, nil)
	b.relay(t, func(*dlq.DeadLetter) string { return "" })
	var answer atomic.Pointer[error]
	answers := func(err error) { answer.Store(&err) }
	waits := errors.New("waits")
	start(t, b.jobs, redelivering("r1", func(ctx context.Context, _ *Redelivery, _ dlq.Actor, _ func(Reading)) ([]gocql.UUID, error) {
		err := *answer.Load()
		if err == waits { //nolint:errorlint // it is this one
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return ids, err
	}))

	answers(fmt.Errorf("mail: %w", &SliceError{Field: "key", Problem: "none has it"}))
	j := b.jobWhen(t, b.mustCreateJob(t, ofMail()).ID, "failed", finished)
	if j.State != Failed || j.Error != "mail: key: none has it" {
		t.Errorf("with a wrong slice: %s %q", j.State, j.Error)
	}

	answers(fmt.Errorf("mail: %w: broken", ErrTopics))
	j = b.jobWhen(t, b.mustCreateJob(t, ofMail()).ID, "paused", func(j *Job) bool { return j.State == Paused })
	if !strings.Contains(j.Error, "the topics cannot be read: broken; resume retries it") {
		t.Errorf("without topics: %q", j.Error)
	}
	answers(waits)
	if err := b.jobs.Resume(t.Context(), j.ID, eve); err != nil {
		t.Fatal(err)
	}
	b.jobWhen(t, j.ID, "running", func(j *Job) bool { return j.State == Running })
	if err := b.jobs.Pause(t.Context(), j.ID, eve); err != nil {
		t.Fatal(err)
	}
	b.jobWhen(t, j.ID, "released", func(j *Job) bool { return j.ClaimedBy == "" })
	answers(errors.New("once"))
	if err := b.jobs.Resume(t.Context(), j.ID, eve); err != nil {
		t.Fatal(err)
	}
	b.jobWhen(t, j.ID, "running", func(j *Job) bool { return j.State == Running })
	answers(nil)
	if j = b.jobWhen(t, j.ID, "done", finished); j.State != Done || j.Progress.Replayed != 2 || j.Error != "" {
		t.Errorf("resumed: %s %+v %q", j.State, j.Progress, j.Error)
	}

	answers(waits)
	j = b.mustCreateJob(t, ofMail())
	b.jobWhen(t, j.ID, "running", func(j *Job) bool { return j.State == Running })
	if err := b.jobs.Cancel(t.Context(), j.ID, eve); err != nil {
		t.Fatal(err)
	}
	if j = b.jobWhen(t, j.ID, "cancelled", finished); j.State != Cancelled || len(j.IDs) > 0 {
		t.Errorf("cancelled: %s %v", j.State, j.IDs)
	}
}

// A redelivery has its own messages alone.
func TestRedelivery_Validate(t *testing.T) {
	t.Parallel()
	good := ofMail()
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Spec){
		"another action": func(s *Spec) { s.Action = dlq.ActionDiscard },
		"ids":            func(s *Spec) { s.IDs = []gocql.UUID{{1}} },
		"a filter":       func(s *Spec) { s.Filter.ErrorClass = "x" },
		"a limit":        func(s *Spec) { s.Limit = 1 },
		"a canary":       func(s *Spec) { s.Canary = true },
		"a priority":     func(s *Spec) { s.ByPriority = true },
	} {
		s := ofMail()
		change(&s)
		if err := s.Validate(); err == nil || !strings.Contains(err.Error(), "redelivery: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
