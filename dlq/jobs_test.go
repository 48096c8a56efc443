package dlq

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
)

func (b *bundle) mustCreateJob(t testing.TB, spec JobSpec) *Job {
	t.Helper()
	j, err := b.CreateJob(t.Context(), spec, eve)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func (b *bundle) mustJob(t testing.TB, id gocql.UUID) *Job {
	t.Helper()
	j, err := b.Job(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func TestCreateJob_IsReadBackAsItWasMade(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := []gocql.UUID{gocql.MustRandomUUID(), gocql.MustRandomUUID()}
	for _, spec := range []JobSpec{
		{Action: ActionReplay, IDs: append(ids, ids[0]), Rate: 2.5, BatchSize: 7, Canary: true, Follow: 7 * time.Minute, Limit: 9},
		{Action: ActionReplay, IDs: ids, Follow: -1},
		{Action: ActionDiscard, Filter: Filter{Status: []Status{Failed}, ErrorClass: "x", EventType: "T", Aggregate: "a", Since: time.UnixMilli(5).UTC()}},
	} {
		made := b.mustCreateJob(t, spec)
		got := b.mustJob(t, made.ID)
		got.writtenBy = gocql.UUID{}
		if !reflect.DeepEqual(got, made) {
			t.Errorf("Job() = %+v, want %+v", got, made)
		}
		if made.State != JobQueued || made.Version != 1 || len(made.History) != 1 || made.History[0].By != eve.Name || made.Actor != eve {
			t.Errorf("CreateJob() = %+v", made)
		}
		if len(spec.IDs) > 0 && (len(made.IDs) != 2 || made.Progress.Total != 2) {
			t.Errorf("a job of two letters, one named twice: %v, total %d", made.IDs, made.Progress.Total)
		}
		if len(spec.IDs) == 0 && (made.BatchSize != DefaultBatchSize || !made.Filter.Until.Equal(made.Created()) || made.Follow != DefaultFollow) {
			t.Errorf("defaults: %+v", made.JobSpec)
		}
	}
	for _, id := range []gocql.UUID{gocql.TimeUUID(), gocql.MustRandomUUID()} {
		if _, err := b.Job(t.Context(), id); !errors.Is(err, ErrNoJob) {
			t.Errorf("Job(%s) of none = %v, want ErrNoJob", id, err)
		}
	}
}

func TestCreateJob_SaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	b := setup(t)
	many := make([]gocql.UUID, MaxJobIDs+1)
	for want, spec := range map[string]JobSpec{
		`action "claim"`:   {Action: ActionClaim},
		"10001 ids":        {Action: ActionReplay, IDs: many},
		"ids and a filter": {Action: ActionReplay, IDs: many[:1], Filter: Filter{Aggregate: "a"}},
		"limit -1":         {Action: ActionReplay, Limit: -1},
		"rate -1":          {Action: ActionReplay, Rate: -1},
		"batch size 1001":  {Action: ActionReplay, BatchSize: 1001},
		"canary":           {Action: ActionDiscard, Canary: true},
		"follow":           {Action: ActionReplay, Canary: true, Follow: -1},
		`status "dead"`:    {Action: ActionPark, Filter: Filter{Status: []Status{"dead"}}},
	} {
		if _, err := b.CreateJob(t.Context(), spec, eve); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("CreateJob() = %v, want it to say %q", err, want)
		}
	}
	if _, err := b.CreateJob(t.Context(), JobSpec{Action: ActionPark}, Actor{}); err == nil {
		t.Error("CreateJob() by nobody = nil")
	}
}

func TestJobs_ListsByTimeOverMonths(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var want []gocql.UUID
	for range 7 {
		want = append([]gocql.UUID{b.mustCreateJob(t, JobSpec{Action: ActionPark}).ID}, want...)
		b.clock.advance(12 * 24 * time.Hour)
	}
	for _, size := range []int{1, 3, 7, 100} {
		var got []gocql.UUID
		var after gocql.UUID
		for {
			jobs, err := b.Jobs(t.Context(), after, size)
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
func TestSteerJob(t *testing.T) {
	t.Parallel()
	for name, effect := range casFaults {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			s := b.another(t, patient)
			ctx := t.Context()
			j := b.mustCreateJob(t, JobSpec{Action: ActionReplay})
			state := func(want JobState, lines int) {
				t.Helper()
				if got := b.mustJob(t, j.ID); got.State != want || len(got.History) != lines || got.Version != int64(lines) {
					t.Fatalf("the job is %s with version %d and %+v, want %s and %d lines", got.State, got.Version, got.History, want, lines)
				}
			}
			for i, step := range []struct {
				do   func() error
				want JobState
			}{
				{func() error { return s.PauseJob(ctx, j.ID, eve) }, JobPaused},
				{func() error { return s.ResumeJob(ctx, j.ID, eve) }, JobQueued},
				{func() error { return s.CancelJob(ctx, j.ID, eve) }, JobCancelled},
			} {
				b.fault("dead_letter_jobs", engine.OpCAS, 0, 1, effect)
				for range 2 { // the second changes nothing
					if err := step.do(); err != nil {
						t.Fatal(err)
					}
				}
				state(step.want, i+2)
			}
			if err := b.ResumeJob(ctx, j.ID, eve); !errors.Is(err, ErrRefused) {
				t.Errorf("ResumeJob() of a cancelled job = %v, want it refused", err)
			}
			if open, err := b.OpenJobs(ctx); err != nil || len(open) != 0 {
				t.Errorf("OpenJobs() = %v, %v: a job that was cancelled before it began is finished", open, err)
			}
			if err := b.PauseJob(ctx, gocql.TimeUUID(), eve); !errors.Is(err, ErrNoJob) {
				t.Errorf("PauseJob() of none = %v, want ErrNoJob", err)
			}
			if err := b.PauseJob(ctx, j.ID, Actor{}); err == nil || errors.Is(err, ErrRefused) {
				t.Errorf("PauseJob() by nobody = %v", err)
			}
		})
	}
}

// A cancelled job of which all is known has its report at once; one that has a
// batch under way, or letters to follow, leaves it to a runner.
func TestCancelJob_FinishesWhatItCan(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, tt := range map[string]struct {
		spec  JobSpec
		began func(*Job)
		want  bool
	}{
		"between batches":         {JobSpec{Action: ActionPark}, func(j *Job) { j.batch = 1 }, true},
		"a batch is under way":    {JobSpec{Action: ActionPark}, func(j *Job) { j.batch, j.ids = 1, []gocql.UUID{gocql.MustRandomUUID()} }, false},
		"a runner has it":         {JobSpec{Action: ActionPark}, func(j *Job) { j.ClaimedBy, j.ClaimedUntil = "r", b.clock.now().Add(time.Minute) }, false},
		"a runner had it":         {JobSpec{Action: ActionPark}, func(j *Job) { j.ClaimedBy, j.ClaimedUntil = "r", b.clock.now() }, true},
		"letters to follow":       {JobSpec{Action: ActionReplay}, func(j *Job) { j.batch = 1 }, false},
		"all letters followed":    {JobSpec{Action: ActionReplay}, func(j *Job) { j.batch, j.cursor.Followed = 1, 1 }, true},
		"letters not to follow":   {JobSpec{Action: ActionReplay, Follow: -1}, func(j *Job) { j.batch = 1 }, true},
		"it was never begun":      {JobSpec{Action: ActionReplay}, func(j *Job) { j.Started = time.Time{} }, true},
		"paused between batches":  {JobSpec{Action: ActionPark}, func(j *Job) { j.batch, j.State = 1, JobPaused }, true},
		"paused, letters waiting": {JobSpec{Action: ActionReplay}, func(j *Job) { j.batch, j.State = 1, JobPaused }, false},
	} {
		j := b.mustCreateJob(t, tt.spec)
		if _, err := b.changeJob(t.Context(), j.ID, "test", func(j *Job) (bool, error) {
			j.State, j.Started = JobRunning, b.clock.now()
			tt.began(j)
			return true, nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := b.CancelJob(t.Context(), j.ID, eve); err != nil {
			t.Fatal(err)
		}
		if j = b.mustJob(t, j.ID); j.State != JobCancelled || j.Finished.IsZero() == tt.want || tt.want && j.ClaimedBy != "" {
			t.Errorf("%s: %s, finished %s, claimed by %q; want finished: %v", name, j.State, j.Finished, j.ClaimedBy, tt.want)
		}
	}
}
