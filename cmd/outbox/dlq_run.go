package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/admin/adminclient"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/load"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
)

// jobPoll is the interval between two reads of a job that a command runs or watches.
const jobPoll = 250 * time.Millisecond

// jobLease is the time after which another process continues the job of a killed command.
const jobLease = 10 * time.Second

// jobPatience is how long a command that watches a job waits for a server that cannot be
// reached.
const jobPatience = time.Minute

// dlqRun contains the flags of commands that run a job.
type dlqRun struct {
	detach bool
	wait   time.Duration
}

func (f *dlqRun) addFlags(cmd *cobra.Command, replay bool) {
	cmd.Flags().BoolVar(&f.detach, "detach", false, "leave the job to 'outbox admin' and return immediately")
	if replay {
		cmd.Flags().DurationVar(&f.wait, "wait", 30*time.Second, "maximum wait for the results; 0 does not wait")
	}
}

// follow returns the maximum wait of a replay for the results of its dead letters, empty
// for the default.
func (f *dlqRun) follow() string {
	if f.detach {
		return ""
	}
	return max(f.wait, 0).String()
}

// hasEnded reports whether the report of a job is final, or the job is paused.
func hasEnded(j *admin.JobBody) bool { return j.FinishedAt != nil || j.State == jobs.Paused }

// finish runs a job, or watches it while the server or another process runs it, and returns
// it. An interruption pauses the job.
func (a *operatorAPI) finish(cmd *cobra.Command, job admin.JobBody) (admin.JobBody, error) {
	last, err := showingJob(cmd, job, func(seen func(admin.JobBody)) error { return a.work(cmd.Context(), job.ID, seen) })
	ctx := cmd.Context()
	if ctx.Err() == nil {
		return last, err
	}
	// An interruption of the command stops the job in every process.
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	_, err = a.SteerJob(detached, job.ID, adminclient.Pause, "the command was interrupted")
	if p, ok := errors.AsType[*adminclient.Error](err); err != nil && (!ok || p.Status != http.StatusConflict) {
		return last, cli.WithHint(fmt.Errorf("interrupted, and job %s is not paused: %w", job.ID, err), "outbox dlq jobs pause %s", job.ID)
	}
	if now, err := a.Job(detached, job.ID); err == nil {
		last = now
	}
	return last, cli.WithHint(fmt.Errorf("interrupted: job %s is %s after %d of %d dead letters", job.ID, last.State, last.Progress.Done, last.Progress.Total),
		"outbox dlq jobs resume %s continues it", job.ID)
}

// work runs a job in this process, or waits for the server, until it has ended. It calls
// seen with each state of the job, the last one at the end.
func (a *operatorAPI) work(ctx context.Context, id string, seen func(admin.JobBody)) error {
	if a.runJob == nil {
		return a.watch(ctx, id, seen)
	}
	watching, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { _ = a.watch(watching, id, seen) }) // the runner reports errors
	err := a.runJob(ctx, id)
	stop()
	wg.Wait()
	if err != nil {
		return err
	}
	job, err := a.Job(ctx, id)
	if err == nil {
		seen(job)
	}
	return err
}

// watch reads a job until it has ended, and calls seen with each state.
func (a *operatorAPI) watch(ctx context.Context, id string, seen func(admin.JobBody)) error {
	for answered := time.Now(); ; {
		job, err := a.Job(ctx, id)
		switch {
		case err == nil:
			answered = time.Now()
			if seen(job); hasEnded(&job) {
				return nil
			}
		case ctx.Err() != nil:
			return ctx.Err()
		case !adminclient.Temporary(err) || time.Since(answered) > jobPatience:
			return cli.WithHint(err, "the job does not depend on this command: outbox dlq jobs watch %s", id)
		}
		if err := retry.Wait(ctx, jobPoll); err != nil {
			return err
		}
	}
}

// showingJob shows the progress of a job while run runs, and returns the last state that
// run has seen. A short list of dead letters has no progress, except on a terminal.
func showingJob(cmd *cobra.Command, job admin.JobBody, run func(seen func(admin.JobBody)) error) (admin.JobBody, error) {
	var last atomic.Pointer[admin.JobBody]
	last.Store(&job)
	seen := func(j admin.JobBody) { last.Store(&j) }
	p := cli.NewProgress(cmd.ErrOrStderr(), func() cli.Work {
		j := last.Load()
		return cli.Work{Done: int64(j.Progress.Done), Total: int64(j.Progress.Total), Detail: jobDetail(j)}
	})
	var err error
	if job.IDs > 0 && job.IDs <= dlqListed && job.Rate == 0 && !p.Terminal {
		err = run(seen)
	} else {
		err = load.Showing(cmd.Context(), p, func() error { return run(seen) })
	}
	return *last.Load(), err
}

// jobDetail returns the text of a progress bar.
func jobDetail(j *admin.JobBody) string {
	if !j.Action.Publishes() {
		return string(j.State)
	}
	p := &j.Progress
	if r := p.Reading; r != nil && p.Total == 0 {
		return fmt.Sprintf("%s, %d records read, %d of %d dead letters made", j.State, r.Records, r.Written, r.Messages)
	}
	return fmt.Sprintf("%s, %d %s, %d failed again, %d waiting", j.State, p.Replayed, nameReplayed(j), p.Failed(), p.Waiting)
}
