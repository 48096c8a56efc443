package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/admin/adminclient"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

// jobStatus returns the error of the exit status.
func jobStatus(j *admin.JobBody) error {
	switch {
	case j.State == jobs.Failed, j.State == jobs.Cancelled, j.State == jobs.Paused, j.Failed > 0:
		return cli.QuietError{}
	case j.FinishedAt == nil, j.Progress.Waiting > 0:
		return cli.WaitsError{}
	}
	return nil
}

// nameReplayed returns what a job does with a dead letter that it replays.
func nameReplayed(j *admin.JobBody) string {
	if j.Redelivery != nil {
		return "acknowledged"
	}
	return "published"
}

// printReport prints the results of a job.
func printReport(w io.Writer, j *admin.JobBody) {
	p := &j.Progress
	if j.Action.Publishes() && j.StartedAt != nil {
		fmt.Fprintf(w, "%d %s, %d failed again, %d still waiting", p.Replayed, nameReplayed(j), j.Failed, p.Waiting)
		if p.Overtaken > 0 {
			fmt.Fprintf(w, ", %d changed concurrently", p.Overtaken)
		}
		fmt.Fprintln(w)
	}
	counts(w, "failed again, by error", p.FailedAgain)
	counts(w, "skipped", p.Skipped)
	if j.Error != "" {
		fmt.Fprintln(w, cli.Clean(j.Error, 0))
	}
	fmt.Fprintf(w, "job %s is %s\n", j.ID, j.State)
}

func newDLQJobsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "jobs",
		Short: "List, pause, resume, cancel and watch bulk changes of dead letters",
		Long: `List, pause, resume, cancel and watch bulk changes of dead letters.

Every change of more than one dead letter by outbox dlq, the console or the HTTP API
is a job in the database. One process at a time runs it; if that process fails,
another one continues. A job changes a dead letter once.`,
	}
	cmd.AddCommand(newDLQJobsListCommand(), newDLQJobsGetCommand(), newDLQJobsWatchCommand())
	for _, st := range jobSteers {
		cmd.AddCommand(newDLQJobsSteerCommand(st))
	}
	return cmd
}

func newDLQJobsListCommand() *cobra.Command {
	var f listing
	cmd := &cobra.Command{Use: "list", Short: "List jobs, newest first"}
	f.addFlags(cmd, "jobs", "were created", jobsListed)
	return newListCommand(cmd, jobTable, query[page[admin.JobBody]]{
		check: f.check,
		read: func(ctx context.Context, api *operatorAPI, _ []string) (p page[admin.JobBody], err error) {
			p.entries, p.next, err = api.Jobs(ctx, f.since, f.until, f.paging())
			return p, err
		},
	})
}

// jobsListed is the default of --limit.
const jobsListed = 20

// jobTable prints jobs as a list.
var jobTable = cli.Table[admin.JobBody]{
	Header: "JOB\tSTATE\tACTION\tDONE\tTOTAL\tFAILED AGAIN\tWAITING\tACTOR\tCREATED\tREASON",
	Wide:   1,
	Row: func(w io.Writer, j admin.JobBody) {
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%s\t%s\t%s\n", j.ID, j.State, j.Action, j.Progress.Done, j.Progress.Total, j.Failed,
			j.Progress.Waiting, cli.Clean(j.Actor, 30), cli.At(w, j.CreatedAt), cli.Clean(j.Reason, 80))
	},
	None: "no job matches",
}

// withJob runs f with the job of the command line; actor is that of withAPI.
func withJob(cmd *cobra.Command, arg, actor string, f func(*operatorAPI, admin.JobBody) error) error {
	if _, err := gocql.ParseUUID(arg); err != nil {
		return cli.Usage(fmt.Errorf("%q is not a valid job id: copy it from outbox dlq jobs list", arg))
	}
	return withAPI(cmd, actor, func(api *operatorAPI) error {
		j, err := api.Job(cmd.Context(), arg)
		if err != nil {
			return err
		}
		return f(api, j)
	})
}

func newDLQJobsGetCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:               "get JOB",
		Short:             "Show a job: its selection, progress, results and history",
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeJobs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return withJob(cmd, args[0], "", func(_ *operatorAPI, j admin.JobBody) error {
				return printJob(cmd.OutOrStdout(), output, &j)
			})
		},
	}
	cli.OutputFlag(cmd, &output)
	app.AddFlags(cmd, app.SectionScylla, app.SectionAPI)
	return cmd
}

func printJob(w io.Writer, output string, v *admin.JobBody) error {
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
		for _, x := range []struct{ name, value string }{{"error", f.ErrorClass}, {"error code", f.ErrorCode}, {"outcome", string(f.Outcome)}, {"type", f.EventType}, {"aggregate", f.Aggregate}, {"table", f.Table}, {"text", f.Text}, {"tags", strings.Join(f.Tags, ", ")}} {
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
	if r := v.Redelivery; r != nil {
		field("redelivery to", r.Subscription)
		for _, x := range []struct{ name, value string }{{"topic", r.Topic}, {"key", r.Key}, {"filter", r.Filter}} {
			if x.value != "" {
				field(x.name, cli.Clean(x.value, 0))
			}
		}
		if !r.Since.IsZero() {
			field("written since", r.Since.UTC().Format(time.RFC3339))
		}
		field("written before", r.Until.UTC().Format(time.RFC3339))
	}
	if r := v.Progress.Reading; r != nil {
		field("records read", r.Records)
	}
	if v.Force {
		field("force", "includes failed and suspended dead letters")
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
	}{{"created", &v.CreatedAt}, {"started", v.StartedAt}, {"finished", v.FinishedAt}} {
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
			return withJob(cmd, args[0], "", func(api *operatorAPI, j admin.JobBody) error {
				last, err := showingJob(cmd, j, func(seen func(admin.JobBody)) error { return api.watch(cmd.Context(), j.ID, seen) })
				if err != nil {
					return err
				}
				printReport(cmd.OutOrStdout(), &last)
				return jobStatus(&last)
			})
		},
	}
	app.AddFlags(cmd, app.SectionScylla, app.SectionAPI)
	return cmd
}

// jobSteer is a command that pauses, resumes or cancels a job.
type jobSteer struct {
	what, short string
	// ask requires a confirmation. A command that is urgent and can be undone has none.
	ask bool
	// then continues the job, unless --detach is set.
	then func(*jobSteerFlags, *cobra.Command, *operatorAPI, admin.JobBody) (admin.JobBody, error)
}

var jobSteers = []jobSteer{
	{adminclient.Pause, "Pause a job between two dead letters", false, nil},
	{adminclient.Resume, "Resume a paused job", true, (*jobSteerFlags).resume},
	{adminclient.Cancel, "Cancel a job; its changes remain", true, (*jobSteerFlags).end},
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
			if err := f.requireReason(f.dryRun); err != nil {
				return err
			}
			return withJob(cmd, args[0], f.actor, func(api *operatorAPI, j admin.JobBody) error { return f.steer(cmd, &st, api, j) })
		},
	}
	f.dlqActor.addFlags(cmd, "history and the audit trail")
	f.dlqConfirm.addFlags(cmd)
	sections := []string{app.SectionScylla, app.SectionAPI}
	switch st.what {
	case adminclient.Resume:
		cmd.Flags().BoolVar(&f.detach, "detach", false, "leave the job to 'outbox admin' and return immediately")
		sections = append(sections, app.SectionRetention)
	case adminclient.Cancel:
		cmd.Flags().BoolVar(&f.detach, "detach", false, "leave the report to 'outbox admin' and return immediately")
		cmd.Flags().DurationVar(&f.wait, "wait", 30*time.Second, "maximum wait for the results of replayed dead letters")
	}
	cli.OutputFlag(cmd, &f.output)
	app.AddFlags(cmd, sections...)
	return cmd
}

func (f *jobSteerFlags) steer(cmd *cobra.Command, st *jobSteer, api *operatorAPI, j admin.JobBody) error {
	fmt.Fprintf(cmd.ErrOrStderr(), "%s of %s by %s is %s, %d of %d dead letters done\n", j.Action, j.CreatedAt.Format(cli.ListTime), cli.Clean(j.Actor, 40),
		j.State, j.Progress.Done, j.Progress.Total)
	if f.dryRun {
		return nil
	}
	if st.ask {
		if err := f.confirm(cmd, st.what+" the job?"); err != nil {
			return err
		}
	}
	j, err := api.SteerJob(cmd.Context(), j.ID, st.what, f.reason)
	if err != nil {
		return err
	}
	then := st.then != nil && !f.detach
	if then {
		if j, err = st.then(f, cmd, api, j); err != nil {
			return err
		}
	}
	if err := printJob(cmd.OutOrStdout(), f.output, &j); err != nil || !then {
		return err
	}
	switch {
	case st.what != adminclient.Cancel:
		return jobStatus(&j)
	case j.FinishedAt == nil:
		return cli.WaitsError{}
	}
	return nil // the requested result
}

// resume runs the job to its end.
func (f *jobSteerFlags) resume(cmd *cobra.Command, api *operatorAPI, j admin.JobBody) (admin.JobBody, error) {
	return api.finish(cmd, j)
}

// end waits up to --wait for the report of a cancelled job, and without a server completes
// it.
func (f *jobSteerFlags) end(cmd *cobra.Command, api *operatorAPI, j admin.JobBody) (admin.JobBody, error) {
	if j.FinishedAt != nil {
		return j, nil
	}
	ctx, stop := context.WithTimeout(cmd.Context(), f.wait)
	defer stop()
	err := api.work(ctx, j.ID, func(admin.JobBody) {})
	if cmd.Context().Err() != nil {
		return j, cmd.Context().Err()
	}
	if err != nil && ctx.Err() == nil {
		return j, err
	}
	return api.Job(cmd.Context(), j.ID)
}
