package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/clocks"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// quick finds out soon.
func quick(owner string) RunnerConfig { return RunnerConfig{Owner: owner, Poll: 5 * time.Millisecond} }

// start runs a runner until stop is called.
func start(t testing.TB, s *Store, cfg RunnerConfig) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := NewRunner(s, cfg).Run(ctx); err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(stop)
	return stop
}

// jobWhen waits until the job is as wanted.
func (b *fixture) jobWhen(t testing.TB, id gocql.UUID, what string, ok func(*Job) bool) *Job {
	t.Helper()
	var j *Job
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if j = b.mustJob(t, id); ok(j) {
			return j
		}
	}
	t.Fatalf("the job is not %s: %s %+v %q", what, j.State, j.Progress, j.Error)
	return nil
}

func finished(j *Job) bool { return !j.Finished.IsZero() }

// actedOnce checks how often the job changed each dead letter.
func (b *fixture) actedOnce(t testing.TB, job gocql.UUID, want int, ids []gocql.UUID) (changed int) {
	t.Helper()
	for _, id := range ids {
		n := 0
		for _, c := range b.mustHistory(t, id) {
			if c.Job == job {
				n++
			}
		}
		if n > 1 || want >= 0 && n != want {
			t.Errorf("the job changed dead letter %s %d times, want %d", id, n, want)
		}
		changed += n
	}
	return changed
}

// relay processes operators' requests like a relay: fail returns the error class of a
// failed replay; empty means that the event is published.
func (b *fixture) relay(t *testing.T, fail func(*dlq.DeadLetter) string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); wg.Wait() })
	wg.Go(func() {
		for ctx.Err() == nil {
			found, err := b.Requests(ctx, testTable, nil)
			if err != nil {
				continue
			}
			for _, q := range found {
				if q.Entry.Status == dlq.Pending {
					b.publish(ctx, q.EventID, fail)
				}
				_ = b.Done(ctx, q)
			}
			_ = retry.Wait(ctx, 5*time.Millisecond)
		}
	})
}

func (b *fixture) publish(ctx context.Context, id gocql.UUID, fail func(*dlq.DeadLetter) string) {
	l, err := b.Claim(ctx, id, "relay", time.Minute)
	if err != nil {
		return
	}
	if class := fail(&l); class != "" {
		_, _ = b.Fail(ctx, id, "relay", dlq.Failure{Class: class, Text: "again"})
		return
	}
	_ = b.Resolve(ctx, id, "relay", dlq.Outcome{Kind: dlq.OutcomeReplayed, Topic: "T"})
}

func TestRunner_ReplaysFollowsAndReports(t *testing.T) {
	t.Parallel()
	b := setupJobs(t)
	ids := b.writeMany(t, 25, func(i int, l *dlq.DeadLetter) {
		switch {
		case i < 5:
			l.Metadata = map[string]string{"fail": "refused"}
		case i < 8:
			l.Status = dlq.Blocked
		}
	})
	if _, err := b.Claim(t.Context(), b.writeMany(t, 1, func(_ int, l *dlq.DeadLetter) { l.Status = dlq.Pending })[0], "relay-2", time.Hour); err != nil {
		t.Fatal(err)
	}
	other := b.writeMany(t, 3, func(_ int, l *dlq.DeadLetter) { l.EventType = "Other" })
	b.relay(t, func(l *dlq.DeadLetter) string { return l.Metadata["fail"] })
	start(t, b.jobs, quick("r1"))
	j := b.mustCreateJob(t, Spec{Action: dlq.ActionReplay, Filter: dlq.Filter{EventType: "OrderCreated"}, BatchSize: 10})
	late := b.writeMany(t, 2, nil) // failed after the job was created
	j = b.jobWhen(t, j.ID, "done", finished)
	want := Progress{
		Total: 26, Done: 26, Changed: 22, Replayed: 17, FailedAgain: map[string]int{"refused": 5},
		Skipped: map[string]int{"blocked": 3, "claimed": 1},
	}
	if j.State != Done || !reflect.DeepEqual(j.Progress, want) || j.Error != "" || j.Started.IsZero() || j.ClaimedBy != "" {
		t.Errorf("the report is %s %+v %q, want %+v", j.State, j.Progress, j.Error, want)
	}
	b.actedOnce(t, j.ID, 1, append(ids[:5:5], ids[8:]...))
	b.actedOnce(t, j.ID, 0, append(append(ids[5:8:8], other...), late...))
	if h := b.mustHistory(t, ids[20]); h[1].By != eve.Name || h[1].Why != eve.Reason {
		t.Errorf("the history is %+v, want the job's actor and reason", h[1])
	}
	n := 0
	for batch := int64(1); batch <= j.batch; batch++ {
		deadLetters, err := b.jobs.readChanged(t.Context(), j.ID, batch)
		if err != nil {
			t.Fatal(err)
		}
		n += len(deadLetters)
	}
	if n != 22 {
		t.Errorf("the job's batches name %d dead letters, want 22", n)
	}
	if open, err := b.jobs.ListOpen(t.Context()); err != nil || len(open) != 0 {
		t.Errorf("ListOpen() = %d jobs, %v", len(open), err)
	}
}

// Replays that are not published in time are reported as waiting, and dead letters that
// others resolve as overtaken.
func TestRunner_ReportsWaitingReplays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var later atomic.Int64
	b.reopen(t, dlq.WithClock(world.Clock(func() time.Time { return time.Now().Add(time.Duration(later.Load())) })))
	ids := b.writeMany(t, 4, nil)
	start(t, b.jobs, quick("r1"))
	j := b.mustCreateJob(t, Spec{Action: dlq.ActionReplay, IDs: append(ids, gocql.MustRandomUUID()), Follow: time.Hour})
	b.jobWhen(t, j.ID, "acting", func(j *Job) bool { return j.Progress.Changed == 4 })
	if err := b.Discard(t.Context(), ids[0], eve); err != nil {
		t.Fatal(err)
	}
	b.jobWhen(t, j.ID, "following", func(j *Job) bool { return j.Progress.Overtaken == 1 })
	later.Store(int64(time.Hour))
	j = b.jobWhen(t, j.ID, "done", finished)
	want := Progress{Total: 5, Done: 5, Changed: 4, Overtaken: 1, Waiting: 3, Skipped: map[string]int{"missing": 1}}
	if !reflect.DeepEqual(j.Progress, want) {
		t.Errorf("the report is %+v, want %+v", j.Progress, want)
	}
	j = b.mustCreateJob(t, Spec{Action: dlq.ActionReplay, IDs: ids[1:], Follow: -1})
	if j = b.jobWhen(t, j.ID, "done", finished); j.Progress.Waiting != 3 {
		t.Errorf("without following the report is %+v", j.Progress)
	}
}

func TestRunner_EveryAction(t *testing.T) {
	t.Parallel()
	b := setupJobs(t)
	start(t, b.jobs, quick("r1"))
	for action, want := range map[dlq.Action]dlq.Status{
		dlq.ActionDiscard: dlq.Resolved, dlq.ActionResolve: dlq.Resolved, dlq.ActionUnblock: dlq.Suspended, dlq.ActionSuspend: dlq.Suspended, dlq.ActionReplay: dlq.Pending,
	} {
		ids := b.writeMany(t, 5, func(_ int, l *dlq.DeadLetter) { l.Status, l.EventType = dlq.Pending, string(action) })
		j := b.mustCreateJob(t, Spec{Action: action, Filter: dlq.Filter{EventType: string(action)}, Limit: 3, BatchSize: 2, Follow: -1})
		j = b.jobWhen(t, j.ID, "done", finished)
		if j.Progress.Total != 3 || j.Progress.Changed != 3 {
			t.Errorf("%s: the report is %+v, want 3 dead letters", action, j.Progress)
		}
		n := 0
		for _, id := range ids {
			changed, err := b.ChangedBy(t.Context(), id, j.ID)
			if err != nil {
				t.Fatal(err)
			}
			if l := b.mustRead(t, id); changed > 0 {
				if n++; l.Status != want {
					t.Errorf("%s: a dead letter is %s, want %s", action, l.Status, want)
				}
			}
		}
		if n != 3 {
			t.Errorf("%s changed %d dead letters, want 3", action, n)
		}
	}
}

// shut prevents changes of the dead letters of an outbox table until open is called:
// writing the request for the relay fails and is retried.
func (b *fixture) shut(table string) (open func()) {
	id := b.Node.Faults().MustAdd(faults.Rule{
		Match: faults.Match{Table: "dead_letter_requests", Func: func(op engine.Op) bool {
			return slices.ContainsFunc(op.Mutations, func(m *store.Mutation) bool { return string(m.Key) == table })
		}},
		Effect: faults.Effect{Failure: faults.Unavailable(0, 1)},
	})
	return func() { _ = b.Node.Faults().Remove(id) }
}

// A pause and a cancellation end the current batch while its changes are retried. They do
// not wait until the retries end.
func TestRunner_PauseResumeCancel(t *testing.T) {
	t.Parallel()
	b := setupJobs(t)
	b.reopen(t, dlq.WithTimeouts(30*time.Second, 30*time.Second)) // then a batch whose changes are retried fails
	ctx := t.Context()
	tables := []string{testTable, "outbox.later", "outbox.never"}
	ids := b.writeMany(t, 12, func(i int, l *dlq.DeadLetter) { l.Table = tables[i/4] })
	open := b.shut(tables[1])
	b.shut(tables[2])
	var warnings bytes.Buffer // of a batch that failed
	cfg := quick("r1")
	cfg.Logger = slog.New(slog.NewTextHandler(&warnings, &slog.HandlerOptions{Level: slog.LevelWarn}))
	stop := start(t, b.jobs, cfg)
	j := b.mustCreateJob(t, Spec{Action: dlq.ActionDiscard, IDs: ids})
	b.jobWhen(t, j.ID, "running", func(j *Job) bool { return j.Progress.Done == 4 })
	if err := b.jobs.Pause(ctx, j.ID, eve); err != nil {
		t.Fatal(err)
	}
	paused := b.jobWhen(t, j.ID, "let go", func(j *Job) bool { return j.ClaimedBy == "" })
	open()
	other := b.mustCreateJob(t, Spec{Action: dlq.ActionDiscard, IDs: b.writeMany(t, 1, nil)})
	b.jobWhen(t, other.ID, "done", finished)
	if now := b.mustJob(t, j.ID); now.State != Paused || now.Version != paused.Version {
		t.Errorf("while another job ran the paused one became %s, version %d, want %d", now.State, now.Version, paused.Version)
	}
	b.actedOnce(t, j.ID, 1, ids[:4])
	b.actedOnce(t, j.ID, 0, ids[4:])
	if err := b.jobs.Resume(ctx, j.ID, eve); err != nil {
		t.Fatal(err)
	}
	b.jobWhen(t, j.ID, "running again", func(j *Job) bool { return j.Progress.Done == 8 })
	if err := b.jobs.Cancel(ctx, j.ID, eve); err != nil {
		t.Fatal(err)
	}
	j = b.jobWhen(t, j.ID, "finished", finished)
	if j.State != Cancelled || j.Progress.Changed != 8 || j.Progress.Done != 8 {
		t.Errorf("the report is %s %+v, want 8 dead letters changed", j.State, j.Progress)
	}
	b.actedOnce(t, j.ID, 1, ids[:8])
	b.actedOnce(t, j.ID, 0, ids[8:])
	if len(j.History) != 4 {
		t.Errorf("history %+v, want create, pause, resume, cancel", j.History)
	}
	if stop(); warnings.Len() > 0 {
		t.Errorf("the batch ended by its own failure: %s", &warnings)
	}
}

// At one dead letter per hour the second one waits.
func TestRunner_Rate(t *testing.T) {
	t.Parallel()
	b := setupJobs(t)
	ids := b.writeMany(t, 20, nil)
	start(t, b.jobs, quick("r1"))
	j := b.mustCreateJob(t, Spec{Action: dlq.ActionDiscard, IDs: ids, Rate: 1.0 / 3600})
	b.jobWhen(t, j.ID, "running", func(j *Job) bool { return j.Progress.Done > 0 })
	if err := b.jobs.Cancel(t.Context(), j.ID, eve); err != nil {
		t.Fatal(err)
	}
	if j = b.jobWhen(t, j.ID, "finished", finished); j.State != Cancelled || j.Progress.Changed != 1 {
		t.Errorf("the report is %s %+v, want one dead letter changed", j.State, j.Progress)
	}
}

// A job that is paused and resumed before its runner notices continues. This runner
// checks its job only between batches.
func TestRunner_PausedAndResumedUnseen(t *testing.T) {
	t.Parallel()
	b := setupJobs(t)
	ids := b.writeMany(t, 6, func(i int, l *dlq.DeadLetter) {
		if i == 2 {
			l.Table = "outbox.later"
		}
	})
	open := b.shut("outbox.later")
	j := b.mustCreateJob(t, Spec{Action: dlq.ActionDiscard, IDs: ids, BatchSize: 3})
	start(t, b.jobs, RunnerConfig{Owner: "r1", Poll: time.Hour})
	b.jobWhen(t, j.ID, "acting", func(j *Job) bool { return len(j.ids) == 3 })
	if err := b.jobs.Pause(t.Context(), j.ID, eve); err != nil {
		t.Fatal(err)
	}
	if err := b.jobs.Resume(t.Context(), j.ID, eve); err != nil {
		t.Fatal(err)
	}
	open()
	if j = b.jobWhen(t, j.ID, "done", finished); j.State != Done || j.Progress.Changed != len(ids) {
		t.Errorf("the report is %s %+v, want all changed", j.State, j.Progress)
	}
	b.actedOnce(t, j.ID, 1, ids)
}

// A job continues however often it is paused and resumed, and whichever of these states
// the runner reads.
func TestRunner_PausedAndResumedRepeatedly(t *testing.T) {
	t.Parallel()
	b := setupJobs(t)
	ids := b.writeMany(t, 60, func(i int, l *dlq.DeadLetter) {
		if i == 59 {
			l.Table = "outbox.last"
		}
	})
	open := b.shut("outbox.last")
	cfg := quick("r1")
	cfg.Poll = 20 * time.Millisecond
	start(t, b.jobs, cfg)
	j := b.mustCreateJob(t, Spec{Action: dlq.ActionDiscard, IDs: ids, Rate: 100, BatchSize: 20})
	b.jobWhen(t, j.ID, "running", func(j *Job) bool { return j.Progress.Done > 0 })
	for range 30 {
		if err := b.jobs.Pause(t.Context(), j.ID, eve); err != nil {
			t.Fatal(err)
		}
		if err := b.jobs.Resume(t.Context(), j.ID, eve); err != nil {
			t.Fatal(err)
		}
	}
	open()
	j = b.jobWhen(t, j.ID, "done", finished)
	if j.State != Done || j.Progress.Changed != len(ids) {
		t.Errorf("the report is %s %+v, want all changed", j.State, j.Progress)
	}
	b.actedOnce(t, j.ID, 1, ids)
}

// claimedJob is a job that a runner has claimed, and not begun to act on.
type claimedJob struct {
	*worker
	b       *fixture
	claimed int64 // the version
	total   int
}

func (b *fixture) claimJob(t *testing.T, r *Runner, spec Spec, deadLetters int) *claimedJob {
	t.Helper()
	id := b.mustCreateJob(t, spec).ID
	j, err := b.jobs.changeJob(t.Context(), id, "claim", func(j *Job) (bool, error) {
		j.State, j.Started, j.ClaimedBy, j.ClaimedUntil = Running, b.jobs.db.Millis(), r.cfg.Owner, b.jobs.db.Millis().Add(time.Hour)
		j.Progress.Total = deadLetters
		return true, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return &claimedJob{&worker{Runner: r, id: id, j: j, limit: rate.NewLimiter(rate.Inf, 1), batches: make(map[int64][]actedOn)}, b, j.Version, deadLetters}
}

// resumeAndFinish resumes and runs the job, and checks that it processed all dead
// letters.
func (w *claimedJob) resumeAndFinish(t *testing.T) {
	t.Helper()
	if err := w.b.jobs.Resume(t.Context(), w.id, eve); err != nil {
		t.Fatal(err)
	}
	w.giveBack(t.Context())
	if j, err := w.RunJob(t.Context(), w.id); err != nil || j.State != Done || j.Progress.Done != w.total {
		t.Errorf("%s: the report is %s %+v (%v), want %d dead letters done", j.Action, j.State, j.Progress, err, w.total)
	}
}

// A job that is paused while its runner plans the last batch continues with it when it
// is resumed.
func TestRunner_PausedWhilePlanningTheLastBatch(t *testing.T) {
	t.Parallel()
	b := setupJobs(t)
	ids := b.writeMany(t, 3, nil)
	r := NewRunner(b.jobs, RunnerConfig{Owner: "r1", Poll: time.Hour})
	for _, spec := range []Spec{{Action: dlq.ActionUnblock, IDs: ids}, {Action: dlq.ActionDiscard, Filter: dlq.Filter{EventType: "OrderCreated"}}} {
		w := b.claimJob(t, r, spec, len(ids))
		if err := b.jobs.Pause(t.Context(), w.id, eve); err != nil {
			t.Fatal(err)
		}
		if err := w.plan(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.resumeAndFinish(t)
	}
}

// While a runner plans a batch, which takes long if few of many dead letters match, it
// keeps its claim and notices that the job is paused.
func TestRunner_KeepsTheJobWhilePlanning(t *testing.T) {
	t.Parallel()
	b := setupJobs(t)
	ctx := t.Context()
	ids := b.writeMany(t, 3, nil)
	r := NewRunner(b.jobs, quick("r1"))
	w := b.claimJob(t, r, Spec{Action: dlq.ActionDiscard, Filter: dlq.Filter{EventType: "OrderCreated"}}, len(ids))
	frozen := b.Node.Faults().MustAdd(faults.Rule{Match: faults.Match{Table: "dead_letter_lookups"}, Effect: faults.Effect{Freeze: true}})
	planned := make(chan error, 1)
	go func() { planned <- w.plan(ctx) }()
	b.jobWhen(t, w.id, "kept", func(j *Job) bool { return j.Version > w.claimed+1 })
	if err := b.jobs.Pause(ctx, w.id, eve); err != nil {
		t.Fatal(err)
	}
	if err := <-planned; err != nil {
		t.Errorf("plan() = %v", err)
	}
	_ = b.Node.Faults().Remove(frozen)
	w.resumeAndFinish(t)
}

// The canary pauses a replay that fails as before, and does not pause one that
// succeeds.
func TestRunner_Canary(t *testing.T) {
	t.Parallel()
	b := setupJobs(t)
	ctx := t.Context()
	ids := b.writeMany(t, 40, func(i int, l *dlq.DeadLetter) { l.Metadata = map[string]string{"i": fmt.Sprint(i)} })
	b.relay(t, func(l *dlq.DeadLetter) string {
		switch l.Metadata["i"] {
		case "0":
			return "another" // is no reason to stop
		case "2":
			return l.ErrorClass
		}
		return ""
	})
	start(t, b.jobs, quick("r1"))
	j := b.mustCreateJob(t, Spec{Action: dlq.ActionReplay, IDs: ids, Canary: true})
	j = b.jobWhen(t, j.ID, "paused", func(j *Job) bool { return j.State == Paused && j.ClaimedBy == "" || finished(j) })
	if n := b.actedOnce(t, j.ID, -1, ids); n != 3 || j.Error == "" || j.Progress.Failed() < 1 {
		t.Errorf("paused after %d dead letters: %q %+v, want 1 and 2", n, j.Error, j.Progress)
	}
	if got := j.CanaryFailed(); !slices.Equal(got, ids[2:3]) {
		t.Errorf("the canary failed with %v, want %v", got, ids[2])
	}
	if err := b.jobs.Resume(ctx, j.ID, eve); err != nil {
		t.Fatal(err)
	}
	j = b.jobWhen(t, j.ID, "done", finished)
	if j.State != Done || j.Progress.Replayed != 38 || j.Progress.Failed() != 2 || j.Error != "" || j.CanaryFailed() != nil {
		t.Errorf("the report is %s %+v %q", j.State, j.Progress, j.Error)
	}
	b.actedOnce(t, j.ID, 1, ids)
}

// Two runners that both claim a job change each dead letter once, and the report is
// correct. The test repeatedly removes the claim of the current one.
func TestRunner_TwoNeverActTwice(t *testing.T) {
	t.Parallel()
	b := setupJobs(t)
	ids := b.writeMany(t, 60, nil)
	b.Node.Faults().MustAdd(faults.Rule{Match: faults.Match{Kinds: []engine.OpKind{engine.OpCAS}}, Probability: 0.03, Effect: casFaults["decided"]})
	for i := range 3 {
		start(t, b.another(t, dlq.WithClock(clocks.System{})), RunnerConfig{Owner: fmt.Sprint("r", i), Poll: 20 * time.Millisecond})
	}
	j := b.mustCreateJob(t, Spec{Action: dlq.ActionReplay, IDs: ids, BatchSize: 7, Follow: -1})
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	for range rounds {
		b.jobWhen(t, j.ID, "claimed", func(j *Job) bool { return j.ClaimedBy != "" || finished(j) })
		if _, err := b.jobs.changeJob(t.Context(), j.ID, "test", func(j *Job) (bool, error) {
			j.ClaimedBy, j.ClaimedUntil = "", time.Time{}
			return !finished(j), nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	j = b.jobWhen(t, j.ID, "done", finished)
	if j.State != Done || j.Progress.Changed != len(ids) || j.Progress.Done != len(ids) {
		t.Errorf("the report is %s %+v, want all changed", j.State, j.Progress)
	}
	b.actedOnce(t, j.ID, 1, ids)
}

// A runner crashes at any of its writes. The next one finishes the job: each dead
// letter is changed once, and counted once.
func TestRunner_CrashesAtEveryWrite(t *testing.T) {
	t.Parallel()
	step := 1
	if testing.Short() {
		step = 9
	}
	var mu sync.Mutex
	done := false // a runner lived to the end
	var wg sync.WaitGroup
	slots := make(chan struct{}, 4)
	for k := 0; k < 200; k += step {
		mu.Lock()
		end := done
		mu.Unlock()
		if end {
			break
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			t.Run(fmt.Sprint("after ", k), func(t *testing.T) {
				if crashAt(t, k) {
					mu.Lock()
					defer mu.Unlock()
					done = true
				}
			})
		})
	}
	wg.Wait()
	if !done {
		t.Error("no runner lived to the end: there are more writes to die at")
	}
}

// crashAt lets a runner die after k writes and another end its job; it returns
// true if the first one had ended it.
func crashAt(t *testing.T, k int) bool {
	b := setupJobs(t)
	ids := b.writeMany(t, 5, func(i int, l *dlq.DeadLetter) {
		l.Status = []dlq.Status{dlq.Pending, dlq.Blocked, dlq.Suspended}[i%3]
		l.FirstFailedAt = b.jobs.db.Millis().Add(-time.Second) // a job selects first failures before its own millisecond
	})
	j := b.mustCreateJob(t, Spec{Action: dlq.ActionReplay, Filter: dlq.Filter{EventType: "OrderCreated"}, BatchSize: 2, Follow: -1})
	rule := b.Node.Faults().MustAdd(faults.Rule{
		Match:  faults.Match{Kinds: []engine.OpKind{engine.OpCAS, engine.OpWrite, engine.OpUnloggedBatch}},
		Skip:   k,
		Effect: faults.Effect{Failure: faults.Unavailable(0, 1), Fate: []engine.Fate{0, engine.FateApply}[k%2]},
	})
	ctx, cancel := context.WithCancel(t.Context())
	// It does not try for long to give the job back.
	dying := b.another(t, dlq.WithClock(clocks.System{}), dlq.WithTimeouts(200*time.Millisecond, 400*time.Millisecond))
	var wg sync.WaitGroup
	wg.Go(func() {
		// On a busy machine its short timeouts can end it before the write at which it crashes.
		for ctx.Err() == nil && b.Node.Faults().Hits(rule) == 0 {
			_, err := NewRunner(dying, RunnerConfig{Owner: "r1", Poll: 100 * time.Millisecond, Concurrency: 1}).RunJob(ctx, j.ID)
			if err == nil {
				return
			}
			if ctx.Err() == nil && !errors.Is(err, context.Canceled) {
				t.Logf("RunJob() = %v", err)
			}
		}
	})
	for deadline := time.Now().Add(5 * time.Minute); !finished(b.mustJob(t, j.ID)) && b.Node.Faults().Hits(rule) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Error("the runner neither ends the job nor crashes")
			break
		}
	}
	cancel()
	wg.Wait()
	died := b.Node.Faults().Hits(rule) > 0
	b.Node.Faults().Clear()
	next := b.another(t, dlq.WithClock(world.Clock(func() time.Time { return time.Now().Add(time.Hour) }))) // the claim has expired
	start(t, next, quick("r2"))
	j = b.jobWhen(t, j.ID, "done", finished)
	want := Progress{Total: 5, Done: 5, Changed: 3, Waiting: 3, Skipped: map[string]int{"blocked": 2}}
	if j.State != Done || !reflect.DeepEqual(j.Progress, want) {
		t.Errorf("the report is %s %+v, want %+v", j.State, j.Progress, want)
	}
	if n := b.actedOnce(t, j.ID, -1, ids); n != 3 {
		t.Errorf("%d dead letters were changed, want 3", n)
	}
	return !died
}

// The client that creates a job sees its progress long before a poll is over: the job has ended by
// then.
func TestRunner_ShowsProgressSoon(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.writeMany(t, 60, nil)
	j := b.mustCreateJob(t, Spec{Action: dlq.ActionDiscard, IDs: ids, Rate: 10})
	defer start(t, b.jobs, RunnerConfig{Owner: "a", Poll: 8 * time.Second})()
	j = b.jobWhen(t, j.ID, "in progress", func(j *Job) bool { return j.Progress.Done > 0 })
	if j.Progress.Done == len(ids) {
		t.Errorf("%d of %d are done when the first are shown, want some of them", j.Progress.Done, len(ids))
	}
}

// A runner that is woken begins a job that it would poll for in an hour.
func TestRunner_Wake(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := NewRunner(b.jobs, RunnerConfig{Owner: "a", Poll: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Errorf("Run() = %v", err)
		}
	})
	first := b.mustCreateJob(t, Spec{Action: dlq.ActionDiscard, IDs: b.writeMany(t, 1, nil)})
	r.Wake()
	b.jobWhen(t, first.ID, "finished", finished) // it has polled
	second := b.mustCreateJob(t, Spec{Action: dlq.ActionDiscard, IDs: b.writeMany(t, 1, nil)})
	r.Wake()
	b.jobWhen(t, second.ID, "finished", finished)
	cancel()
	wg.Wait()
}
