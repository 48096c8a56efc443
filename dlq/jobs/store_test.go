package jobs

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/dlq"
)

func (b *fixture) mustCreateJob(t testing.TB, spec Spec) *Job {
	t.Helper()
	j, err := b.jobs.Create(t.Context(), spec, eve)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func (b *fixture) mustJob(t testing.TB, id gocql.UUID) *Job {
	t.Helper()
	j, err := b.jobs.Read(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func TestCreate_IsReadBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := []gocql.UUID{gocql.MustRandomUUID(), gocql.MustRandomUUID()}
	for _, spec := range []Spec{
		{Action: dlq.ActionReplay, IDs: append(ids, ids[0]), Rate: 2.5, BatchSize: 7, Canary: true, Follow: 7 * time.Minute, Limit: 9},
		{Action: dlq.ActionReplay, IDs: ids, Follow: -1},
		{Action: dlq.ActionDiscard, Filter: dlq.Filter{Status: []dlq.Status{dlq.Failed}, ErrorClass: "x", EventType: "T", Aggregate: "a", Since: time.UnixMilli(5).UTC()}},
	} {
		made := b.mustCreateJob(t, spec)
		got := b.mustJob(t, made.ID)
		got.writtenBy = gocql.UUID{}
		if !reflect.DeepEqual(got, made) {
			t.Errorf("Job() = %+v, want %+v", got, made)
		}
		if made.State != Queued || made.Version != 1 || len(made.History) != 1 || made.History[0].By != eve.Name || made.Actor != eve {
			t.Errorf("Create() = %+v", made)
		}
		if len(spec.IDs) > 0 && (len(made.IDs) != 2 || made.Progress.Total != 2) {
			t.Errorf("a job of two dead letters, one named twice: %v, total %d", made.IDs, made.Progress.Total)
		}
		if len(spec.IDs) == 0 && (made.BatchSize != DefaultBatchSize || !made.Filter.Until.Equal(made.CreatedAt()) || made.Follow != DefaultFollow) {
			t.Errorf("defaults: %+v", made.Spec)
		}
	}
	for _, id := range []gocql.UUID{gocql.TimeUUID(), gocql.MustRandomUUID()} {
		if _, err := b.jobs.Read(t.Context(), id); !errors.Is(err, ErrNoJob) {
			t.Errorf("Job(%s) of none = %v, want ErrNoJob", id, err)
		}
	}
}

func TestCreate_ReportsInvalidSpecs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	many := make([]gocql.UUID, MaxIDs+1)
	for want, spec := range map[string]Spec{
		`action "claim"`:   {Action: dlq.ActionClaim},
		"10001 ids":        {Action: dlq.ActionReplay, IDs: many},
		"ids and a filter": {Action: dlq.ActionReplay, IDs: many[:1], Filter: dlq.Filter{Aggregate: "a"}},
		"limit -1":         {Action: dlq.ActionReplay, Limit: -1},
		"rate -1":          {Action: dlq.ActionReplay, Rate: -1},
		"batch size 1001":  {Action: dlq.ActionReplay, BatchSize: 1001},
		"canary":           {Action: dlq.ActionDiscard, Canary: true},
		"follow":           {Action: dlq.ActionReplay, Canary: true, Follow: -1},
		`status "dead"`:    {Action: dlq.ActionSuspend, Filter: dlq.Filter{Status: []dlq.Status{"dead"}}},
	} {
		if _, err := b.jobs.Create(t.Context(), spec, eve); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Create() = %v, want it to contain %q", err, want)
		}
	}
	if _, err := b.jobs.Create(t.Context(), Spec{Action: dlq.ActionSuspend}, dlq.Actor{}); err == nil {
		t.Error("Create() without an actor = nil")
	}
}

func TestList_ByTimeOverMonths(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var want []gocql.UUID
	for range 7 {
		want = append([]gocql.UUID{b.mustCreateJob(t, Spec{Action: dlq.ActionSuspend}).ID}, want...)
		b.clock.advance(12 * 24 * time.Hour)
	}
	for _, size := range []int{1, 3, 7, 100} {
		var got []gocql.UUID
		var after gocql.UUID
		for {
			jobs, err := b.jobs.List(t.Context(), after, size)
			if err != nil {
				t.Fatal(err)
			}
			if len(jobs) == 0 {
				break
			}
			for _, j := range jobs {
				got = append(got, j.ID)
			}
			after = got[len(got)-1]
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%d at a time: %v, want %v", size, got, want)
		}
	}
}

// An operator's change of a job is made once, whatever becomes of its statement.
func TestSteer(t *testing.T) {
	t.Parallel()
	for name, effect := range casFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			s := b.another(t, patient)
			ctx := t.Context()
			j := b.mustCreateJob(t, Spec{Action: dlq.ActionReplay})
			state := func(want State, lines int) {
				t.Helper()
				if got := b.mustJob(t, j.ID); got.State != want || len(got.History) != lines || got.Version != int64(lines) {
					t.Fatalf("the job is %s with version %d and %+v, want %s and %d lines", got.State, got.Version, got.History, want, lines)
				}
			}
			for i, step := range []struct {
				do   func() error
				want State
			}{
				{func() error { return s.Pause(ctx, j.ID, eve) }, Paused},
				{func() error { return s.Resume(ctx, j.ID, eve) }, Queued},
				{func() error { return s.Cancel(ctx, j.ID, eve) }, Cancelled},
			} {
				b.fault("dead_letter_jobs", engine.OpCAS, 0, 1, effect)
				for range 2 { // the second changes nothing
					if err := step.do(); err != nil {
						t.Fatal(err)
					}
				}
				state(step.want, i+2)
			}
			if err := b.jobs.Resume(ctx, j.ID, eve); !errors.Is(err, dlq.ErrRefused) {
				t.Errorf("Resume() of a cancelled job = %v, want it refused", err)
			}
			if open, err := b.jobs.ListOpen(ctx); err != nil || len(open) != 0 {
				t.Errorf("ListOpen() = %v, %v: a job that was cancelled before it began is finished", open, err)
			}
			if err := b.jobs.Pause(ctx, gocql.TimeUUID(), eve); !errors.Is(err, ErrNoJob) {
				t.Errorf("Pause() of none = %v, want ErrNoJob", err)
			}
			if err := b.jobs.Pause(ctx, j.ID, dlq.Actor{}); err == nil || errors.Is(err, dlq.ErrRefused) {
				t.Errorf("Pause() without an actor = %v", err)
			}
		})
	}
}

// The report of a cancelled job is final immediately if its counts are complete;
// otherwise a runner completes them.
func TestCancel_FinishesCompleteReports(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, tt := range map[string]struct {
		spec  Spec
		began func(*Job)
		want  bool
	}{
		"between batches":              {Spec{Action: dlq.ActionSuspend}, func(j *Job) { j.batch = 1 }, true},
		"a batch is under way":         {Spec{Action: dlq.ActionSuspend}, func(j *Job) { j.batch, j.ids = 1, []gocql.UUID{gocql.MustRandomUUID()} }, false},
		"a runner has it":              {Spec{Action: dlq.ActionSuspend}, func(j *Job) { j.ClaimedBy, j.ClaimedUntil = "r", b.clock.Now().Add(time.Minute) }, false},
		"a runner had it":              {Spec{Action: dlq.ActionSuspend}, func(j *Job) { j.ClaimedBy, j.ClaimedUntil = "r", b.clock.Now() }, true},
		"dead letters to follow":       {Spec{Action: dlq.ActionReplay}, func(j *Job) { j.batch = 1 }, false},
		"all dead letters followed":    {Spec{Action: dlq.ActionReplay}, func(j *Job) { j.batch, j.cursor.Followed = 1, 1 }, true},
		"dead letters not to follow":   {Spec{Action: dlq.ActionReplay, Follow: -1}, func(j *Job) { j.batch = 1 }, true},
		"it was never begun":           {Spec{Action: dlq.ActionReplay}, func(j *Job) { j.Started = time.Time{} }, true},
		"paused between batches":       {Spec{Action: dlq.ActionSuspend}, func(j *Job) { j.batch, j.State = 1, Paused }, true},
		"paused, dead letters waiting": {Spec{Action: dlq.ActionReplay}, func(j *Job) { j.batch, j.State = 1, Paused }, false},
	} {
		j := b.mustCreateJob(t, tt.spec)
		if _, err := b.jobs.changeJob(t.Context(), j.ID, "test", func(j *Job) (bool, error) {
			j.State, j.Started = Running, b.clock.Now()
			tt.began(j)
			return true, nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := b.jobs.Cancel(t.Context(), j.ID, eve); err != nil {
			t.Fatal(err)
		}
		if j = b.mustJob(t, j.ID); j.State != Cancelled || j.Finished.IsZero() == tt.want || tt.want && j.ClaimedBy != "" {
			t.Errorf("%s: %s, finished %s, claimed by %q; want finished: %v", name, j.State, j.Finished, j.ClaimedBy, tt.want)
		}
	}
}
