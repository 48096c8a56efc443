package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

// jobView is a job for people and scripts.
type jobView struct {
	ID         string           `json:"id"`
	State      jobs.State       `json:"state"`
	Action     dlq.Action       `json:"action"`
	Filter     *dlq.Filter      `json:"filter,omitempty"`
	IDs        int              `json:"ids,omitempty"`
	Limit      int              `json:"limit,omitempty"`
	Rate       float64          `json:"rate,omitempty"`
	BatchSize  int              `json:"batch_size"`
	Canary     bool             `json:"canary,omitempty"`
	Force      bool             `json:"force,omitempty"`
	NoArchive  bool             `json:"no_archive,omitempty"`
	ByPriority bool             `json:"by_priority,omitempty"`
	Set        *dlq.Labels      `json:"set,omitempty"`
	Actor      string           `json:"actor"`
	Reason     string           `json:"reason,omitempty"`
	Progress   jobs.Progress    `json:"progress"`
	Error      string           `json:"error,omitempty"`
	RunBy      string           `json:"run_by,omitempty"`
	Created    time.Time        `json:"created_at"`
	Started    *time.Time       `json:"started_at,omitempty"`
	Finished   *time.Time       `json:"finished_at,omitempty"`
	Version    int64            `json:"version"`
	History    []jobs.JobChange `json:"history"`
}

func viewOfJob(j *jobs.Job) *jobView {
	v := &jobView{
		ID: j.ID.String(), State: j.State, Action: j.Action, IDs: len(j.IDs), Limit: j.Limit, Rate: j.Rate, BatchSize: j.BatchSize,
		Canary: j.Canary, Force: j.Force, NoArchive: j.NoArchive, ByPriority: j.ByPriority, Set: j.Set, Actor: j.Actor.Name, Reason: j.Actor.Reason, Progress: j.Progress, Error: j.Error, RunBy: j.ClaimedBy,
		Created: j.Created(), Started: timeOrNil(j.Started), Finished: timeOrNil(j.Finished), Version: j.Version, History: j.History,
	}
	if len(j.IDs) == 0 && j.Action != dlq.ActionArchive {
		v.Filter = &j.Filter
	}
	return v
}

// status returns the error of the exit status.
func (v *jobView) status() error {
	switch {
	case v.State == jobs.Failed, v.State == jobs.Cancelled, v.State == jobs.Paused, v.Progress.Failed() > 0:
		return cli.QuietError{}
	case v.Finished == nil, v.Progress.Waiting > 0:
		return cli.WaitsError{}
	}
	return nil
}

// printReport prints the results of a job.
func printReport(w io.Writer, v *jobView) {
	p := &v.Progress
	if v.Action == dlq.ActionReplay && v.Started != nil {
		fmt.Fprintf(w, "%d published, %d failed again, %d still waiting", p.Replayed, p.Failed(), p.Waiting)
		if p.Overtaken > 0 {
			fmt.Fprintf(w, ", %d changed concurrently", p.Overtaken)
		}
		fmt.Fprintln(w)
	}
	counts(w, "failed again, by error", wideText(p.FailedAgain))
	counts(w, "skipped", wideText(p.Skipped))
	if v.Error != "" {
		fmt.Fprintln(w, cli.Clean(v.Error, 0))
	}
	fmt.Fprintf(w, "job %s is %s\n", v.ID, v.State)
}

func wideText(m map[string]int) map[string]int64 { return wide(m) }

func newDLQJobsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "jobs",
		Short: "List, pause, resume, cancel and watch bulk changes of dead letters",
		Long: `List, pause, resume, cancel and watch bulk changes of dead letters.

Every change of more than one dead letter by outbox dlq, the console or the HTTP API
is a job in the database. One process at a time runs it; if that process fails,
another one continues. A job changes a dead letter once.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDLQJobsListCommand(), newDLQJobsShowCommand(), newDLQJobsWatchCommand())
	for _, st := range jobSteers {
		cmd.AddCommand(newDLQJobsSteerCommand(st))
	}
	return cmd
}

func newDLQJobsListCommand() *cobra.Command {
	var output string
	var limit int
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List jobs, newest first",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			if limit < 1 {
				return cli.Usage(fmt.Errorf("--limit %d must be at least 1", limit))
			}
			return withDLQ(cmd, func(s *dlq.Store) error {
				list, err := jobs.New(s).List(cmd.Context(), gocql.UUID{}, limit)
				if err != nil {
					return err
				}
				return jobTable.Print(cmd, output, list, false)
			})
		},
	}
	cmd.Flags().IntVar(&limit, "limit", 20, "maximum number of jobs")
	cli.ListFlags(cmd, &output)
	app.AddFlags(cmd, app.SectionScylla)
	return cmd
}

// jobTable prints jobs as a list.
var jobTable = cli.Table[*jobs.Job]{
	Header: "JOB\tSTATE\tACTION\tDONE\tTOTAL\tFAILED AGAIN\tWAITING\tACTOR\tCREATED\tREASON",
	Wide:   1,
	Row: func(w io.Writer, j *jobs.Job) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", j.ID, j.State, j.Action, j.Progress.Done, j.Progress.Total, j.Progress.Failed(),
			j.Progress.Waiting, cli.Clean(j.Actor.Name, 30), cli.At(w, j.Created()), cli.Clean(j.Actor.Reason, 80))
	},
	View: func(j *jobs.Job) any { return viewOfJob(j) },
	None: "there are no jobs",
}

// withJob checks output and runs f with the job of the command line.
func withJob(cmd *cobra.Command, arg, output string, f func(*app.Config, *dlq.Store, *auditTrail, *jobs.Job) error) error {
	if err := cli.CheckOutput(output); err != nil {
		return err
	}
	id, err := jobID(arg)
	if err != nil {
		return err
	}
	return withDLQConfig(cmd, func(c *app.Config, s *dlq.Store, trail *auditTrail) error {
		j, err := jobs.New(s).Read(cmd.Context(), id)
		if errors.Is(err, jobs.ErrNoJob) {
			return cli.WithHint(err, "outbox dlq jobs list prints the ids")
		}
		if err != nil {
			return err
		}
		return f(c, s, trail, j)
	})
}

func newDLQJobsShowCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:               "show JOB",
		Short:             "Show a job: its selection, progress, results and history",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withJob(cmd, args[0], output, func(_ *app.Config, _ *dlq.Store, _ *auditTrail, j *jobs.Job) error {
				return printJob(cmd.OutOrStdout(), output, viewOfJob(j))
			})
		},
	}
	cli.OutputFlag(cmd, &output)
	app.AddFlags(cmd, app.SectionScylla)
	return cmd
}

func printJob(w io.Writer, output string, v *jobView) error {
	if output != "table" {
		return cli.PrintAs(w, output, v)
	}
	tw := cli.NewColumns(w)
	field := cli.FieldsOn(tw)
	field("job", v.ID)
	field("state", v.State)
	field("action", v.Action)
	if f := v.Filter; f != nil {
		field("status", f.Status)
		for _, x := range []struct{ name, value string }{{"error", f.ErrorClass}, {"type", f.EventType}, {"aggregate", f.Aggregate}, {"table", f.Table}, {"tags", strings.Join(f.Tags, ", ")}} {
			if x.value != "" {
				field(x.name, x.value)
			}
		}
		if f.MinPriority != nil {
			field("least priority", *f.MinPriority)
		}
		if !f.Since.IsZero() {
			field("failed since", f.Since.UTC().Format(time.RFC3339))
		}
		field("failed before", f.Until.UTC().Format(time.RFC3339))
	} else if v.IDs > 0 {
		field("event ids", v.IDs)
	}
	if v.Force {
		field("force", "includes failed and manual dead letters")
	}
	if v.ByPriority {
		field("order", "higher priorities first, then the oldest failures")
	}
	if c := v.Set; c != nil {
		if c.Priority != nil {
			field("priority", *c.Priority)
		}
		field("tags added", strings.Join(c.AddTags, ", "))
		field("tags removed", strings.Join(c.RemoveTags, ", "))
	}
	if v.NoArchive {
		field("archive", "none: the dead letters are deleted")
	}
	if v.Rate > 0 {
		field("rate", fmt.Sprintf("%v/s", v.Rate))
	}
	field("batch size", v.BatchSize)
	field("done", fmt.Sprintf("%d of %d, %d changed", v.Progress.Done, v.Progress.Total, v.Progress.Changed))
	if v.RunBy != "" {
		field("run by", v.RunBy)
	}
	for _, x := range []struct {
		name string
		at   *time.Time
	}{{"created", &v.Created}, {"started", v.Started}, {"finished", v.Finished}} {
		if x.at != nil {
			field(x.name, x.at.UTC().Format(time.RFC3339))
		}
	}
	for _, c := range v.History {
		field(c.At.UTC().Format(time.RFC3339), c.What+" by "+c.By+": "+c.Why)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	printReport(w, v)
	return nil
}

func newDLQJobsWatchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "watch JOB",
		Short:             "Watch a job until it ends or pauses, without running it",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withJob(cmd, args[0], "table", func(_ *app.Config, s *dlq.Store, _ *auditTrail, j *jobs.Job) error {
				if err := showingJob(cmd, jobs.New(s), j, func() (err error) {
					for err == nil && j.Finished.IsZero() && j.State != jobs.Paused {
						select {
						case <-cmd.Context().Done():
							return cmd.Context().Err()
						case <-time.After(jobPoll):
						}
						j, err = jobs.New(s).Read(cmd.Context(), j.ID)
					}
					return err
				}); err != nil {
					return err
				}
				printReport(cmd.OutOrStdout(), viewOfJob(j))
				return viewOfJob(j).status()
			})
		},
	}
	app.AddFlags(cmd, app.SectionScylla)
	return cmd
}

// jobSteer is a command that pauses, resumes or cancels a job.
type jobSteer struct {
	what, short string
	do          func(*jobs.Store, context.Context, gocql.UUID, dlq.Actor) error
	// ask requires a confirmation. A command that is urgent and can be undone has none.
	ask bool
	// then continues the job in this process, unless --detach is set.
	then func(*jobSteerFlags, *cobra.Command, *jobs.Store, jobs.Archive, *jobs.Job) (*jobs.Job, error)
}

var jobSteers = []jobSteer{
	{"pause", "Pause a job between two dead letters", (*jobs.Store).Pause, false, nil},
	{"resume", "Resume a paused job in this process", (*jobs.Store).Resume, true, (*jobSteerFlags).resume},
	{"cancel", "Cancel a job; its changes remain", (*jobs.Store).Cancel, true, (*jobSteerFlags).end},
}

type jobSteerFlags struct {
	dlqActor
	dlqConfirm
	detach bool
	wait   time.Duration
	output string
}

func newDLQJobsSteerCommand(st jobSteer) *cobra.Command {
	var f jobSteerFlags
	cmd := &cobra.Command{
		Use:               st.what + " JOB",
		Short:             st.short,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := f.required(f.dryRun); err != nil {
				return err
			}
			return withJob(cmd, args[0], f.output, func(c *app.Config, s *dlq.Store, trail *auditTrail, j *jobs.Job) error {
				f.trail = trail
				return withKeeper(c, cmd, s, func(a jobs.Archive) error { return f.steer(cmd, &st, jobs.New(s), a, j) })
			})
		},
	}
	f.dlqActor.addFlags(cmd, "history and the audit trail")
	f.dlqConfirm.addFlags(cmd)
	sections := []string{app.SectionScylla}
	switch st.what {
	case "resume":
		cmd.Flags().BoolVar(&f.detach, "detach", false, "leave the job to 'outbox admin' and return immediately")
		sections = append(sections, app.SectionRetention)
	case "cancel":
		cmd.Flags().BoolVar(&f.detach, "detach", false, "leave the report to 'outbox admin' and return immediately")
		cmd.Flags().DurationVar(&f.wait, "wait", 30*time.Second, "maximum wait for the results of replayed dead letters")
	}
	cli.OutputFlag(cmd, &f.output)
	app.AddFlags(cmd, sections...)
	return cmd
}

func (f *jobSteerFlags) steer(cmd *cobra.Command, st *jobSteer, s *jobs.Store, a jobs.Archive, j *jobs.Job) error {
	fmt.Fprintf(cmd.ErrOrStderr(), "%s of %s by %s is %s, %d of %d dead letters done\n", j.Action, j.Created().Format(cli.ListTime), cli.Clean(j.Actor.Name, 40),
		j.State, j.Progress.Done, j.Progress.Total)
	if f.dryRun {
		return nil
	}
	if st.ask {
		if err := f.confirm(cmd, st.what+" the job?"); err != nil {
			return err
		}
	}
	if err := f.audited(cmd.Context(), st.what+"-job", j.ID.String(), nil, func(ctx context.Context) (string, error) {
		return "", st.do(s, ctx, j.ID, f.by())
	}); err != nil {
		return err
	}
	j, err := s.Read(cmd.Context(), j.ID)
	if err != nil {
		return err
	}
	here := st.then != nil && !f.detach
	if here {
		if j, err = st.then(f, cmd, s, a, j); err != nil {
			return err
		}
	}
	v := viewOfJob(j)
	if err := printJob(cmd.OutOrStdout(), f.output, v); err != nil || !here {
		return err
	}
	switch {
	case st.what != "cancel":
		return v.status()
	case v.Finished == nil:
		return cli.WaitsError{}
	}
	return nil // the requested result
}

// resume runs the job in this process.
func (f *jobSteerFlags) resume(cmd *cobra.Command, s *jobs.Store, a jobs.Archive, j *jobs.Job) (*jobs.Job, error) {
	return runJob(cmd, s, a, j, f.by())
}

// end completes the report of a cancelled job, unless the process that runs it does.
func (f *jobSteerFlags) end(cmd *cobra.Command, s *jobs.Store, a jobs.Archive, j *jobs.Job) (*jobs.Job, error) {
	if !j.Finished.IsZero() {
		return j, nil
	}
	ctx, stop := context.WithTimeout(cmd.Context(), f.wait)
	defer stop()
	_, err := jobRunner(s, a).RunJob(ctx, j.ID)
	if cmd.Context().Err() != nil {
		return j, cmd.Context().Err()
	}
	if err != nil && ctx.Err() == nil {
		return j, err
	}
	return s.Read(cmd.Context(), j.ID)
}
