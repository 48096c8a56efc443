package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/internal/self"
)

// Defaults of a Runner.
const (
	// DefaultPoll is the interval at which a runner polls for jobs and checks whether
	// its own were paused.
	DefaultPoll = time.Second
	// DefaultJobs limits the concurrent jobs of a runner.
	DefaultJobs = 2
	// DefaultConcurrency is the number of dead letters of a job that are changed
	// concurrently.
	DefaultConcurrency = 8
)

// RunnerConfig is how a Runner works. Zero values mean the defaults.
type RunnerConfig struct {
	// Owner identifies the runner. Default: the host, the process, and a random part.
	Owner string
	// Lease is the duration of a runner's claim after each renewal. Default
	// DefaultClaim.
	Lease time.Duration
	// Poll defaults to DefaultPoll.
	Poll time.Duration
	// Jobs defaults to DefaultJobs.
	Jobs int
	// Concurrency defaults to DefaultConcurrency.
	Concurrency int
	// Archive is for jobs that purge, restore or sweep. Without one they are left
	// to other runners, but for purges that need none.
	Archive Archive
	// Redeliverer is for jobs with a redelivery whose dead letters are not made. Without one they
	// are left to other runners.
	Redeliverer Redeliverer
	// Registerer receives the metrics of the jobs. The default registers none.
	Registerer prometheus.Registerer
	// Logger logs the progress of jobs. The default discards it.
	Logger *slog.Logger
}

// Runner runs jobs. Any number of runners in any number of processes may share the jobs
// of a keyspace: one runner at a time owns a job, and after a crash another continues
// it. A job changes each dead letter at most once, even if a runner has lost the job
// without noticing.
type Runner struct {
	store *Store
	cfg   RunnerConfig
	log   *slog.Logger

	metrics *metrics
	woken   chan struct{} // has a token after Wake
}

// NewRunner returns a runner; it does nothing before Run or RunJob.
func NewRunner(s *Store, cfg RunnerConfig) *Runner {
	if cfg.Owner == "" {
		cfg.Owner = self.Unique()
	}
	cfg.Lease = cmp.Or(max(cfg.Lease, 0), dlq.DefaultClaim)
	cfg.Poll = cmp.Or(max(cfg.Poll, 0), DefaultPoll)
	cfg.Jobs = cmp.Or(max(cfg.Jobs, 0), DefaultJobs)
	cfg.Concurrency = cmp.Or(max(cfg.Concurrency, 0), DefaultConcurrency)
	r := &Runner{store: s, cfg: cfg, log: cfg.Logger, metrics: newMetrics(cfg.Registerer), woken: make(chan struct{}, 1)}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	return r
}

// Wake lets Run look for jobs now rather than after RunnerConfig.Poll, because one was created or
// resumed. It does not block, and is safe for concurrent use.
func (r *Runner) Wake() {
	select {
	case r.woken <- struct{}{}:
	default:
	}
}

// Run runs jobs until ctx ends, and then releases them; other runners continue them. It
// returns nil: failures are logged and retried.
func (r *Runner) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	var mu sync.Mutex
	mine := make(map[gocql.UUID]bool)
	tick := time.NewTicker(r.cfg.Poll)
	defer tick.Stop()
	for {
		jobs, err := r.store.ListOpen(ctx)
		if err != nil && ctx.Err() == nil {
			r.log.Warn("failed to poll for jobs; retrying", "err", err)
		}
		if err == nil {
			r.metrics.setOpen(jobs)
		}
		for _, j := range jobs {
			mu.Lock()
			start := !mine[j.ID] && len(mine) < r.cfg.Jobs && r.wants(j)
			if start {
				mine[j.ID] = true
			}
			mu.Unlock()
			if !start {
				continue
			}
			wg.Go(func() {
				r.once(ctx, j.ID)
				mu.Lock()
				defer mu.Unlock()
				delete(mine, j.ID)
			})
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-r.woken:
		}
	}
}

// RunJob runs one job, or waits while another runner has it, until its report is
// final, it pauses, or ctx ends; then it gives the job back and returns ctx's
// error. One that needs an archive is refused without one.
func (r *Runner) RunJob(ctx context.Context, id gocql.UUID) (*Job, error) {
	for {
		j, err := r.store.Read(ctx, id)
		switch {
		case err != nil:
			return nil, err
		case !j.Finished.IsZero(), j.State == Paused:
			return j, nil
		case !r.can(j) && j.needsPreparation():
			return j, fmt.Errorf("%s job %s: %w", j.Action, id, errNoRedeliverer)
		case !r.can(j):
			return j, fmt.Errorf("%s job %s: %w is missing", j.Action, id, dlq.ErrArchive)
		case r.wants(j):
			r.once(ctx, id)
			if ctx.Err() == nil {
				if j, err = r.store.Read(ctx, id); err == nil && (!j.Finished.IsZero() || j.State == Paused) {
					return j, nil
				}
			}
		}
		if err := retry.Wait(ctx, r.cfg.Poll); err != nil {
			return nil, err
		}
	}
}

// wants reports whether this runner may claim the job.
func (r *Runner) wants(j *Job) bool {
	return j.Finished.IsZero() && j.State != Paused && r.can(j) &&
		(j.ClaimedBy == r.cfg.Owner || !j.isClaimed(r.store.db.Clock.Now()))
}

// can reports whether this runner has the parts that the job needs. The rest of a cancelled
// job needs nothing.
func (r *Runner) can(j *Job) bool {
	return j.State == Cancelled || (r.cfg.Archive != nil || !j.needsArchive()) && (r.cfg.Redeliverer != nil || !j.needsPreparation())
}

// errLostJob reports that another runner owns the job.
var errLostJob = fmt.Errorf("another runner owns the job: %w", dlq.ErrRefused)

// once claims a job and runs it until it ends, pauses or fails.
func (r *Runner) once(ctx context.Context, id gocql.UUID) {
	s := r.store
	j, err := s.changeJob(ctx, id, "claim", func(j *Job) (bool, error) {
		if !r.wants(j) {
			return false, errLostJob
		}
		if j.State == Queued {
			j.State = Running
		}
		if j.Started.IsZero() {
			j.Started = s.db.Millis()
		}
		j.ClaimedBy, j.ClaimedUntil = r.cfg.Owner, s.db.Millis().Add(r.cfg.Lease)
		return true, nil
	})
	if err != nil {
		if !errors.Is(err, dlq.ErrRefused) && ctx.Err() == nil {
			r.log.Warn("failed to claim a job", "job", id, "err", err)
		}
		return
	}
	r.log.Info("job claimed", "job", id, "action", j.Action, "actor", j.Actor.Name)
	limit := rate.NewLimiter(rate.Inf, 1)
	if j.Rate > 0 {
		limit = rate.NewLimiter(rate.Limit(j.Rate), 1)
	}
	w := &worker{Runner: r, id: id, j: j, limit: limit, batches: make(map[int64][]actedOn)}
	err = w.run(ctx)
	switch {
	case err == nil, errors.Is(err, errLostJob), ctx.Err() != nil:
	default:
		r.log.Warn("job interrupted; retrying", "job", id, "err", err)
	}
	w.giveBack(ctx)
	r.log.Info("job released", "job", id, "state", w.j.State, "done", w.j.Progress.Done, "of", w.j.Progress.Total)
}
