package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/load"
)

// jobPoll is the interval between two reads of a job that this process runs or watches.
const jobPoll = 250 * time.Millisecond

// jobLease is the time after which another process continues the job of a killed command.
const jobLease = 10 * time.Second

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

// follow returns the maximum wait of the job for the results of its dead letters.
func (f *dlqRun) follow() time.Duration {
	switch {
	case f.detach:
		return jobs.DefaultFollow
	case f.wait > 0:
		return f.wait
	}
	return -1
}

// maxAuditedIDs bounds the event ids of an audit entry; the job contains all of them.
const maxAuditedIDs = 100

// create creates a job, records that in the audit trail, and runs it. The job is nil if it
// was not created.
func (f *dlqChangeFlags) create(cmd *cobra.Command, s *jobs.Store, a jobs.Archive, spec jobs.Spec) (job *jobs.Job, err error) {
	detail := spec
	detail.IDs = detail.IDs[:min(len(detail.IDs), maxAuditedIDs)]
	err = f.audited(cmd.Context(), "create-job", "", detail, func(ctx context.Context) (string, error) {
		created, err := s.Create(ctx, spec, f.by())
		if err != nil {
			return "", err
		}
		job = created
		return job.ID.String(), nil
	})
	if err != nil {
		return nil, err
	}
	if f.detach {
		return job, nil
	}
	return runJob(cmd, s, a, job, f.by())
}

// runJob runs a job in this process, or watches it while another one runs it. An
// interruption pauses the job. a is the archive, nil without one.
func runJob(cmd *cobra.Command, s *jobs.Store, a jobs.Archive, job *jobs.Job, by dlq.Actor) (*jobs.Job, error) {
	ctx := cmd.Context()
	runner := jobRunner(s, a)
	var err error
	last := job
	run := func() error {
		var end *jobs.Job
		if end, err = runner.RunJob(ctx, job.ID); end != nil {
			last = end
		}
		return err
	}
	err = showingJob(cmd, s, job, run)
	if ctx.Err() == nil {
		return last, err
	}
	// An interruption of the command stops the job in every process.
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
	defer cancel()
	by.Reason = "the command was interrupted"
	if err := s.Pause(detached, job.ID, by); err != nil && !errors.Is(err, dlq.ErrRefused) {
		return last, cli.WithHint(fmt.Errorf("interrupted, and job %s is not paused: %w", job.ID, err), "outbox dlq jobs pause %s", job.ID)
	}
	if now, err := s.Read(detached, job.ID); err == nil {
		last = now
	}
	return last, cli.WithHint(fmt.Errorf("interrupted: job %s is %s after %d of %d dead letters", job.ID, last.State, last.Progress.Done, last.Progress.Total),
		"outbox dlq jobs resume %s continues it", job.ID)
}

func jobRunner(s *jobs.Store, a jobs.Archive) *jobs.Runner {
	return jobs.NewRunner(s, jobs.RunnerConfig{Poll: jobPoll, Lease: jobLease, Archive: a})
}

// showingJob shows the progress of a large job while run runs.
func showingJob(cmd *cobra.Command, s *jobs.Store, job *jobs.Job, run func() error) error {
	var seen atomic.Pointer[jobs.Job]
	seen.Store(job)
	p := cli.NewProgress(cmd.ErrOrStderr(), 0, func() int64 { return int64(seen.Load().Progress.Done) }, func() string { return jobDetail(seen.Load()) })
	p.Total = func() int64 { return int64(seen.Load().Progress.Total) }
	if job.Progress.Total <= dlqListed && len(job.IDs) > 0 && job.Rate == 0 && !p.Terminal {
		return run()
	}
	ctx, stop := context.WithCancel(cmd.Context())
	look := func() {
		if j, err := s.Read(ctx, job.ID); err == nil {
			seen.Store(j)
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			look()
			select {
			case <-ctx.Done():
			case <-time.After(jobPoll):
			}
		}
	})
	err := load.Showing(cmd.Context(), p, func() error {
		err := run()
		look()
		return err
	})
	stop()
	wg.Wait()
	return err
}

// jobDetail returns the text of a progress bar.
func jobDetail(j *jobs.Job) string {
	if j.Action != dlq.ActionReplay {
		return string(j.State)
	}
	p := &j.Progress
	return fmt.Sprintf("%s, %d published, %d died again, %d waiting", j.State, p.Replayed, p.Failed(), p.Waiting)
}

// jobIDs reads the ids of jobs on the command line.
func jobID(arg string) (gocql.UUID, error) {
	id, err := gocql.ParseUUID(arg)
	if err != nil {
		return id, cli.Usage(fmt.Errorf("%q is not a valid job id: copy it from outbox dlq jobs list", arg))
	}
	return id, nil
}
