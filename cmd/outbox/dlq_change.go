package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/admin/adminclient"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

// dlqChange is a command that changes dead letters.
type dlqChange struct {
	action      dlq.Action
	short, long string
}

var dlqChanges = []dlqChange{
	{
		dlq.ActionReplay, "Replay dead letters",
		`Replay dead letters: the relay publishes them now, in the order of their
aggregates, then the events that they block. A dead letter that fails again stays.

The command first checks that a relay runs and that its breaker is closed. --force
skips these checks, in an outage: the relay publishes the dead letters once it can.
The command then waits up to --wait for the results.`,
	},
	{
		dlq.ActionDiscard, "Discard dead letters: never publish them",
		`Discard dead letters: they are never published, and consumers do not receive them.
The dead letters stay in the database; the events that they block are published.`,
	},
	{
		dlq.ActionUnblock, "Publish later events of the aggregate before the dead letter",
		`Publish later events of the aggregate before the dead letter. The dead letter stays
with status suspended. It can be replayed later, out of order, or discarded.`,
	},
	{
		dlq.ActionResolve, "Resolve dead letters that were handled elsewhere",
		`Resolve dead letters that were handled elsewhere, such as by hand in the systems
that consume them. They are not published; the events that they block are.`,
	},
	{
		dlq.ActionReopen, "Reopen dead letters that were discarded or resolved by hand",
		`Reopen dead letters that were discarded or resolved by hand, as long as retention
keeps them: they become suspended. They block nothing, because their aggregates have
continued: a replay publishes them out of order.`,
	},
	{
		dlq.ActionSuspend, "Suspend dead letters: stop their automatic replay",
		`Suspend dead letters: with status suspended they are not replayed automatically. They
block the later events of their aggregates until an operator replays, discards or
unblocks them.`,
	},
}

// dlqChangeFlags contains the flags of every change.
type dlqChangeFlags struct {
	dlqFilter
	dlqConfirm
	dlqActor
	dlqRun
	all, canary, force, noArchive, byPriority bool
	set                                       *admin.Labels // of ActionSet
	topic                                     string        // of ActionRedirect
	output, object                            string
	rate                                      float64
	batchSize                                 int
}

func newDLQChangeCommand(c dlqChange) *cobra.Command { return newDLQChangeWith(c, nil) }

// newDLQChangeWith is newDLQChangeCommand with a function that reads the flags of one
// action; nil for none.
func newDLQChangeWith(c dlqChange, read func(*cobra.Command, *dlqChangeFlags) error) *cobra.Command {
	var f dlqChangeFlags
	cmd := &cobra.Command{
		Use:   string(c.action) + " [EVENT_ID...]",
		Short: c.short,
		Long: c.long + `

Select dead letters by event id, by filters, or by --all. Without --status this
means ` + meantWithout[c.action] + ` ones. The command prints a preview first. The change is a job in the
database: an interruption pauses it, and 'outbox dlq jobs resume' continues it.`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: completeDeadLetters,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := eventIDs(args)
			if err == nil {
				err = f.requireReason(f.dryRun)
			}
			if err == nil && read != nil {
				err = read(cmd, &f)
			}
			if err != nil {
				return err
			}
			job, err := f.job(c.action, ids, time.Now())
			if err != nil {
				return err
			}
			return withAPI(cmd, f.actor, func(api *operatorAPI) error { return f.change(cmd, api, job) })
		},
	}
	f.dlqFilter.addFlags(cmd, 0)
	f.dlqConfirm.addFlags(cmd)
	f.dlqActor.addFlags(cmd, "history and the audit trail")
	f.dlqRun.addFlags(cmd, c.action.Publishes())
	fl := cmd.Flags()
	fl.BoolVar(&f.all, "all", false, "apply to every eligible dead letter; cannot be combined with filters")
	fl.Float64Var(&f.rate, "rate", 0, "maximum number of dead letters per second; 0 is no limit")
	size := jobs.DefaultBatchSize
	sections := []string{app.SectionScylla, app.SectionAPI}
	switch c.action {
	case dlq.ActionPurge:
		size = jobs.MaxBatchSize
		fl.BoolVar(&f.force, "force", false, "include failed and suspended dead letters")
		fl.BoolVar(&f.noArchive, "no-archive", false, "delete the dead letters without archiving them")
		sections = append(sections, app.SectionRetention)
	case dlq.ActionRestore:
		fl.StringVar(&f.object, "object", "", "all archived dead letters of this object")
		sections = append(sections, app.SectionRetention)
	case dlq.ActionRedirect:
		fl.BoolVar(&f.force, "force", false, "skip the checks of relay and breaker: publish once the relay can")
		sections = append(sections, app.SectionKafka) // which has the topic
	case dlq.ActionReplay:
		fl.BoolVar(&f.canary, "canary", false, "start with 1, 2, 5 and 20 dead letters; pause if one fails with the same error")
		fl.BoolVar(&f.byPriority, "by-priority", false, "higher priorities first, then the oldest failures; at most 10000 dead letters")
		fl.BoolVar(&f.force, "force", false, "skip the checks of relay and breaker: publish once the relay can")
	}
	fl.IntVar(&f.batchSize, "batch-size", size, "number of dead letters between two saves of the job's progress")
	cli.OutputFlag(cmd, &f.output)
	app.AddFlags(cmd, sections...)
	return cmd
}

// meantWithout contains the statuses that a change selects without --status.
var meantWithout = map[dlq.Action]string{
	dlq.ActionReplay: "open", dlq.ActionRedirect: "open", dlq.ActionDiscard: "open", dlq.ActionUnblock: "open",
	dlq.ActionResolve: "open", dlq.ActionSuspend: "open", dlq.ActionSet: "open",
	dlq.ActionReopen: "discarded", dlq.ActionPurge: "resolved and archived", dlq.ActionRestore: "archived",
}

// dlqConfirm contains the flags of commands that ask for confirmation.
type dlqConfirm struct{ dryRun, yes bool }

func (f *dlqConfirm) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only print the preview")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask for confirmation")
}

// dlqActor contains the flags of the actor and the reason of a change.
type dlqActor struct{ reason, actor string }

// requireReason returns an error of usage for a change without a reason.
func (f *dlqActor) requireReason(dryRun bool) error {
	if dryRun {
		return nil
	}
	return reasonRequired(f.reason, "--dry-run prints the preview without a reason")
}

// actorName returns the actor, by default the user of this machine.
func (f *dlqActor) actorName() string { return cmp.Or(f.actor, thisUser()) }

// reasonRequired returns an error of usage for an empty reason of a change.
func reasonRequired(reason, hint string) error {
	if strings.TrimSpace(reason) != "" {
		return nil
	}
	return cli.Usage(cli.WithHint(errors.New("--reason is required: the audit trail records it"), "%s", hint))
}

// addFlags adds the flags; keeper names the records in their help.
func (f *dlqActor) addFlags(cmd *cobra.Command, keeper string) {
	cmd.Flags().StringVar(&f.reason, "reason", "", "reason, recorded in the "+keeper+"; required for a change")
	cmd.Flags().StringVar(&f.actor, "actor", "", "actor, recorded in the "+keeper+" (default the user of this machine)")
}

// scope returns the filter of the flags. It is an error of usage to select nothing, or to
// combine event ids (named), filters and --all (all).
func (f *dlqFilter) scope(named, all bool, now time.Time) (dlq.Filter, error) {
	filter, err := f.filter(now)
	switch {
	case err != nil:
		return filter, err
	case named && (!f.empty() || all || f.Limit != 0):
		return filter, cli.Usage(errors.New("event ids and filters cannot be combined: use one of them"))
	case !named && f.empty() && !all:
		return filter, cli.Usage(errors.New("no dead letters selected: name event ids, use a filter such as --error-class, or --all"))
	case all && !f.empty():
		return filter, cli.Usage(errors.New("--all and filters cannot be combined: use one of them"))
	}
	return filter, nil
}

// job returns the job of the flags for the dead letters of ids, of an object, or of the
// filter. Errors are of usage.
func (f *dlqChangeFlags) job(action dlq.Action, ids []gocql.UUID, now time.Time) (job admin.NewJobBody, err error) {
	job = admin.NewJobBody{
		JobTarget: admin.JobTarget{
			Action: action, Object: f.object, Limit: f.Limit, Rate: f.rate, Force: f.force && action == dlq.ActionPurge, NoArchive: f.noArchive,
			ByPriority: f.byPriority, Set: f.set, Topic: f.topic,
		},
		BatchSize: f.batchSize, Canary: f.canary,
	}
	if action.Publishes() {
		job.Follow = f.follow()
	}
	for _, id := range ids {
		job.IDs = append(job.IDs, id.String())
	}
	filter, err := f.scope(namesDeadLetters(&job), f.all, now)
	switch {
	case err != nil:
		return job, err
	case len(ids) > 0 && f.object != "":
		return job, cli.Usage(errors.New("event ids and --object cannot be combined: use one of them"))
	case f.rate < 0:
		return job, cli.Usage(fmt.Errorf("--rate %v must not be negative", f.rate))
	case f.canary && !f.detach && f.wait <= 0:
		return job, cli.Usage(errors.New("--canary needs the results of its first dead letters: use it with --wait or --detach"))
	case f.batchSize < 1 || f.batchSize > jobs.MaxBatchSize:
		return job, cli.Usage(fmt.Errorf("--batch-size %d must be 1 to %d", f.batchSize, jobs.MaxBatchSize))
	}
	if namesDeadLetters(&job) {
		return job, nil
	}
	if len(filter.Status) == 0 {
		filter.Status = (&jobs.Spec{Action: action, Force: job.Force}).Statuses()
	}
	if filter.Until.IsZero() || filter.Until.After(now) {
		filter.Until = now.UTC() // excludes dead letters written after the preview
	}
	job.Filter = &admin.FilterBody{
		ErrorClass: filter.ErrorClass, ErrorCode: filter.ErrorCode, Outcome: string(filter.Outcome), EventType: filter.EventType, Aggregate: filter.Aggregate, Table: filter.Table, Tags: filter.Tags,
		MinPriority: filter.MinPriority, Text: filter.Text, Since: filter.Since, Until: filter.Until,
	}
	for _, s := range filter.Status {
		job.Filter.Status = append(job.Filter.Status, string(s))
	}
	return job, nil
}

// namesDeadLetters reports whether a job names its dead letters, by ids or by an object.
func namesDeadLetters(job *admin.NewJobBody) bool { return len(job.IDs) > 0 || job.Object != "" }

// change prints the preview of a job and, after the confirmation, creates and runs it.
func (f *dlqChangeFlags) change(cmd *cobra.Command, api *operatorAPI, job admin.NewJobBody) error {
	preview, err := api.Preview(cmd.Context(), job.JobTarget)
	if err != nil {
		return withoutArchive(err, job.Action)
	}
	if f.output == "table" || !f.dryRun {
		printPreview(cmd.ErrOrStderr(), &preview)
		if f.noArchive {
			fmt.Fprintln(cmd.ErrOrStderr(), "they go to no archive: payloads, errors and histories are lost")
		}
	}
	refused := namesDeadLetters(&job) && preview.Missing+sumCounts(preview.Refused) > 0
	switch {
	case f.dryRun:
		for _, p := range preview.Problems {
			fmt.Fprintln(cmd.ErrOrStderr(), "not published now: "+cli.Clean(p, 300))
		}
		return f.print(cmd, preview)
	case preview.DeadLetters == 0 && !preview.Truncated && job.Action != dlq.ActionArchive:
		if err := f.print(cmd, preview); err != nil || !refused {
			return err
		}
		return cli.QuietError{}
	}
	if err := f.healthy(cmd, preview.Problems); err != nil {
		return err
	}
	if err := f.confirm(cmd, fmt.Sprintf("%s %s?", job.Action, atLeast(&preview))); err != nil {
		return err
	}
	made, err := api.CreateJob(cmd.Context(), narrow(job, &preview), f.reason)
	if err != nil {
		return err
	}
	var interrupted error
	if !f.detach {
		made, interrupted = api.finish(cmd, made)
	}
	if err := f.report(cmd, &made, &preview); err != nil || interrupted != nil {
		return errors.Join(err, interrupted)
	}
	if refused || made.Progress.SkippedAll() > 0 {
		return cli.QuietError{}
	}
	return jobStatus(&made)
}

// withoutArchive adds the flags to the error of an action that needs an archive.
func withoutArchive(err error, action dlq.Action) error {
	p, ok := errors.AsType[*adminclient.Error](err)
	switch {
	case !ok || p.Status != http.StatusConflict:
		return err
	case action == dlq.ActionPurge:
		return cli.WithHint(err, "set archive.url (--archive-url); or delete the dead letters without an archive by --no-archive")
	}
	return cli.WithHint(err, archiveHint)
}

// archiveHint is the hint for a missing setting.
const archiveHint = "archive.url (--archive-url) names a folder, or a bucket such as s3://name?region=…"

// atLeast returns the number of dead letters of a preview.
func atLeast(p *admin.PreviewBody) string {
	if p.Truncated {
		return "at least " + cli.Plural(p.DeadLetters, "dead letter")
	}
	return cli.Plural(p.DeadLetters, "dead letter")
}

// healthy returns an error unless relays can publish the dead letters now, or with --force.
func (f *dlqChangeFlags) healthy(cmd *cobra.Command, problems []string) error {
	text := strings.Join(problems, "; ")
	switch {
	case text == "":
		return nil
	case f.force:
		_, err := fmt.Fprintln(cmd.ErrOrStderr(), "problems: "+text+"; continuing because of --force")
		return err
	}
	return cli.WithHint(errors.New("nothing was changed: "+text), "fix it, or add --force: the relay publishes the dead letters once it can")
}

// narrow returns the job without the statuses of its filter of which the preview refuses
// every dead letter: they would only be skipped. A claimed dead letter is refused until its
// claim expires, so the job keeps that status.
func narrow(job admin.NewJobBody, p *admin.PreviewBody) admin.NewJobBody {
	if job.Filter == nil {
		return job
	}
	filter := *job.Filter
	filter.Status = slices.DeleteFunc(slices.Clone(filter.Status), func(name string) bool {
		s := dlq.Status(name)
		return s != dlq.Processing && p.Refused[s] > 0 && p.ByStatus[s] == 0
	})
	if len(filter.Status) > 0 {
		job.Filter = &filter
	}
	return job
}

// print prints a body as JSON or YAML, or nothing.
func (f *dlqChangeFlags) print(cmd *cobra.Command, body any) error {
	if f.output == "table" {
		return nil
	}
	return cli.PrintAs(cmd.OutOrStdout(), f.output, body)
}

// report prints a job that a change has made.
func (f *dlqChangeFlags) report(cmd *cobra.Command, job *admin.JobBody, p *admin.PreviewBody) error {
	if f.output != "table" {
		return f.print(cmd, job)
	}
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "%s: %d changed, %d refused, %d failed again\n", job.Action, job.Progress.Changed, job.Progress.SkippedAll(), job.Failed)
	printReport(w, job)
	what, ok := map[dlq.Action]string{
		dlq.ActionDiscard: "never published", dlq.ActionResolve: "not published by the relay", dlq.ActionUnblock: "published after later ones of their aggregates",
	}[job.Action]
	if ok && job.Progress.Changed > 0 {
		fmt.Fprintf(w, "%s, %s; no longer blocked: %s\n", cli.Plural(job.Progress.Changed, "event"), what, cli.Plural(p.Followers, "event"))
	}
	return nil
}

// sumCounts returns the sum of counts.
func sumCounts[K comparable](counts map[K]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

func printPreview(w io.Writer, p *admin.PreviewBody) {
	fmt.Fprintf(w, "%s %s of %s", p.Action, cli.Plural(p.DeadLetters, "dead letter"), cli.Plural(p.Aggregates, "aggregate"))
	if p.Estimated >= 1 {
		by := map[string]string{"rate": "at the given rate", "jobs before": "by the rate of earlier jobs", "default rate": "by the default rate"}[p.EstimatedBy]
		fmt.Fprintf(w, ", in about %s %s", time.Duration(p.Estimated*float64(time.Second)).Round(time.Second), by)
	}
	fmt.Fprintln(w)
	if p.Truncated {
		fmt.Fprintf(w, "only the newest %d were examined\n", p.LookedAt)
	}
	counts(w, "by status", p.ByStatus)
	counts(w, "by error", p.ByClass)
	counts(w, "by topic", p.ByTopic)
	if len(p.Sample) > 0 {
		title := "aggregates"
		if len(p.Sample) < p.Aggregates {
			title = fmt.Sprintf("aggregates, %d of %d", len(p.Sample), p.Aggregates)
		}
		of := make(map[string]int64, len(p.Sample))
		for _, a := range p.Sample {
			of[a.AggregateID] = int64(a.DeadLetters)
		}
		counts(w, title, of)
	}
	switch more := ""; {
	case p.Followers > 0:
		if p.FollowersOf < p.Aggregates {
			more = fmt.Sprintf(" in the first %d aggregates", p.FollowersOf)
		}
		fmt.Fprintf(w, "blocked by them%s: %s\n", more, cli.Plural(p.Followers, "event"))
	}
	counts(w, "not eligible for "+string(p.Action), p.Refused)
	for _, reason := range p.Reasons {
		fmt.Fprintln(w, "  "+cli.Clean(reason, 300))
	}
	if p.Expired > 0 {
		fmt.Fprintf(w, "expired objects of the archive: %d\n", p.Expired)
	}
}

// confirm returns nil if --yes is set or the user confirms the change.
func (f *dlqConfirm) confirm(cmd *cobra.Command, question string) error {
	if f.yes {
		return nil
	}
	in, isFile := cmd.InOrStdin().(*os.File)
	if !isFile || !term.IsTerminal(int(in.Fd())) {
		return cli.Usage(cli.WithHint(errors.New("nothing was changed: there is no terminal for the confirmation"), "--yes skips the confirmation"))
	}
	return ask(in, cmd.ErrOrStderr(), question)
}

// ask prints a question and returns an error unless the answer is yes.
func ask(in io.Reader, out io.Writer, question string) error {
	fmt.Fprintf(out, "%s Type yes to continue: ", question)
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if strings.ToLower(strings.TrimSpace(line)) != "yes" {
		return errors.New("nothing was changed")
	}
	return nil
}

// thisUser returns the name of the user who runs the command.
func thisUser() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "unknown"
}
