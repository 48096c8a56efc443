package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
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

The command first checks that a relay runs, that its breaker is closed and that
the broker answers. --force skips these checks. The command then waits up to
--wait for the results.`,
	},
	{
		dlq.ActionDiscard, "Discard dead letters: never publish them",
		`Discard dead letters: they are never published, and consumers do not receive them.
The dead letters stay in the database; the events that they block are published.`,
	},
	{
		dlq.ActionRelease, "Publish later events of the aggregate before the dead letter",
		`Publish later events of the aggregate before the dead letter. The dead letter stays
with status manual. It can be replayed later, out of order, or discarded.`,
	},
	{
		dlq.ActionResolve, "Resolve dead letters that were handled elsewhere",
		`Resolve dead letters that were handled elsewhere, such as by hand in the systems
that consume them. They are not published; the events that they block are.`,
	},
	{
		dlq.ActionPark, "Suspend dead letters: stop their automatic replay",
		`Suspend dead letters: with status manual they are not replayed automatically. They
block the later events of their aggregates until an operator replays, discards or
releases them.`,
	},
}

// dlqChangeFlags contains the flags of every change.
type dlqChangeFlags struct {
	dlqFilter
	dlqConfirm
	dlqActor
	dlqRun
	all, canary, force, noArchive, byPriority bool
	set                                       *dlq.Labels // of ActionSet
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
				err = f.required(f.dryRun)
			}
			if err == nil && read != nil {
				err = read(cmd, &f)
			}
			if err != nil {
				return err
			}
			spec, err := f.check(c.action, len(ids) > 0 || f.object != "", time.Now())
			if err != nil {
				return err
			}
			if len(ids) > 0 && f.object != "" {
				return cli.Usage(errors.New("event ids and --object cannot be combined: use one of them"))
			}
			return withDLQConfig(cmd, func(conf *app.Config, s *dlq.Store, trail *auditTrail) error {
				f.trail = trail
				return withKeeper(conf, cmd, s, func(a jobs.Archive) error { return f.change(cmd, conf, s, a, spec, ids) })
			})
		},
	}
	f.dlqFilter.addFlags(cmd, 0)
	f.dlqConfirm.addFlags(cmd)
	f.dlqActor.addFlags(cmd, "history and the audit trail")
	f.dlqRun.addFlags(cmd, c.action == dlq.ActionReplay)
	fl := cmd.Flags()
	fl.BoolVar(&f.all, "all", false, "apply to every eligible dead letter; cannot be combined with filters")
	fl.Float64Var(&f.rate, "rate", 0, "maximum number of dead letters per second; 0 is no limit")
	size := jobs.DefaultBatchSize
	sections := []string{app.SectionScylla}
	switch c.action {
	case dlq.ActionPurge:
		size = jobs.MaxBatchSize
		fl.BoolVar(&f.force, "force", false, "include failed and manual dead letters")
		fl.BoolVar(&f.noArchive, "no-archive", false, "delete the dead letters without archiving them")
		sections = append(sections, app.SectionRetention)
	case dlq.ActionRestore:
		fl.StringVar(&f.object, "object", "", "all archived dead letters of this object")
		sections = append(sections, app.SectionRetention)
	case dlq.ActionReplay:
		fl.BoolVar(&f.canary, "canary", false, "start with 1, 2, 5 and 20 dead letters; pause if one fails with the same error")
		fl.BoolVar(&f.byPriority, "by-priority", false, "higher priorities first, then the oldest failures; at most 10000 dead letters")
		fl.BoolVar(&f.force, "force", false, "skip the checks of relay, breaker and broker")
		sections = append(sections, app.SectionKafka)
	}
	fl.IntVar(&f.batchSize, "batch-size", size, "number of dead letters between two saves of the job's progress")
	cli.OutputFlag(cmd, &f.output)
	app.AddFlags(cmd, sections...)
	return cmd
}

// meantWithout contains the statuses that a change selects without --status.
var meantWithout = map[dlq.Action]string{
	dlq.ActionReplay: "open", dlq.ActionDiscard: "open", dlq.ActionRelease: "open",
	dlq.ActionResolve: "open", dlq.ActionPark: "open", dlq.ActionSet: "open",
	dlq.ActionPurge: "resolved and archived", dlq.ActionRestore: "archived",
}

// dlqConfirm contains the flags of commands that ask for confirmation.
type dlqConfirm struct{ dryRun, yes bool }

func (f *dlqConfirm) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only print the preview")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do not ask for confirmation")
}

// dlqActor contains the flags of the actor and the reason of a change.
type dlqActor struct {
	reason, actor string
	trail         *auditTrail // where audited records changes
}

// auditTrail records changes of commands in the audit trail, as the admin API does.
type auditTrail struct {
	session  *gocql.Session
	keyspace string
	log      *slog.Logger
}

// newAuditTrail returns the audit trail of the configuration's keyspace.
func newAuditTrail(cmd *cobra.Command, c *app.Config, session *gocql.Session) *auditTrail {
	return &auditTrail{session, c.Scylla.Keyspace, slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))}
}

// audited makes a change and records it and its result in the audit trail. do may return
// the target of the change. If the change cannot be recorded, do is not called.
func (f *dlqActor) audited(ctx context.Context, action, target string, detail any, do func(context.Context) (target string, err error)) error {
	text := ""
	if detail != nil {
		b, err := json.Marshal(detail)
		if err != nil {
			return err
		}
		text = string(b)
	}
	by := f.by()
	change := admin.Change{Actor: by.Name, Action: action, Target: target, Detail: text, Reason: by.Reason}
	return admin.Audited(ctx, f.trail.session, f.trail.keyspace, f.trail.log, change, func(ctx context.Context) (string, string, error) {
		target, err := do(ctx)
		return target, "", err
	})
}

// required returns an error of usage for a change without a reason.
func (f *dlqActor) required(dryRun bool) error {
	if dryRun || strings.TrimSpace(f.reason) != "" {
		return nil
	}
	return cli.Usage(cli.WithHint(errors.New("--reason is required: the audit trail records it"), "--dry-run prints the preview without a reason"))
}

// addFlags adds the flags; keeper names the records in their help.
func (f *dlqActor) addFlags(cmd *cobra.Command, keeper string) {
	cmd.Flags().StringVar(&f.reason, "reason", "", "reason, recorded in the "+keeper+"; required for a change")
	cmd.Flags().StringVar(&f.actor, "actor", "", "actor, recorded in the "+keeper+" (default the user of this machine)")
}

// by returns the actor of the change.
func (f *dlqActor) by() dlq.Actor {
	by := dlq.Actor{Name: f.actor, Reason: f.reason}
	if by.Name == "" {
		by.Name = thisUser()
	}
	return by
}

// scope returns the filter of the flags. It is an error of usage to select nothing, or to
// combine event ids (named), filters and --all (all).
func (f *dlqFilter) scope(named, all bool, output string, now time.Time) (dlq.Filter, error) {
	filter, err := f.filter(now)
	if err == nil {
		err = cli.CheckOutput(output)
	}
	switch {
	case err != nil:
		return filter, err
	case named && (!f.empty() || all || f.Limit != 0):
		return filter, cli.Usage(errors.New("event ids and filters cannot be combined: use one of them"))
	case !named && f.empty() && !all:
		return filter, cli.Usage(errors.New("no dead letters selected: name event ids, use a filter such as --error-type, or --all"))
	case all && !f.empty():
		return filter, cli.Usage(errors.New("--all and filters cannot be combined: use one of them"))
	}
	return filter, nil
}

// check returns the job of the flags; named reports that the command line names the dead
// letters.
func (f *dlqChangeFlags) check(action dlq.Action, named bool, now time.Time) (jobs.Spec, error) {
	spec := jobs.Spec{
		Action: action, Rate: f.rate, BatchSize: f.batchSize, Canary: f.canary, Follow: f.follow(), Limit: f.Limit,
		Force: f.force && action == dlq.ActionPurge, NoArchive: f.noArchive, ByPriority: f.byPriority, Set: f.set,
	}
	var err error
	spec.Filter, err = f.scope(named, f.all, f.output, now)
	switch {
	case err != nil:
		return spec, err
	case f.rate < 0:
		return spec, cli.Usage(fmt.Errorf("--rate %v must not be negative", f.rate))
	case f.canary && spec.Follow < 0:
		return spec, cli.Usage(errors.New("--canary needs the results of its first dead letters: use it with --wait or --detach"))
	case f.batchSize < 1 || f.batchSize > jobs.MaxBatchSize:
		return spec, cli.Usage(fmt.Errorf("--batch-size %d must be 1 to %d", f.batchSize, jobs.MaxBatchSize))
	}
	if len(spec.Filter.Status) == 0 {
		spec.Filter.Status = spec.Statuses()
	}
	if !named && (spec.Filter.Until.IsZero() || spec.Filter.Until.After(now)) {
		spec.Filter.Until = now.UTC() // excludes dead letters written after the preview
	}
	return spec, nil
}

// changed is the result of a change as JSON.
type changed struct {
	Preview jobs.Preview `json:"preview"`
	DryRun  bool         `json:"dry_run,omitempty"`
	Changed int          `json:"changed"`
	// Refused counts the dead letters whose status does not permit the action, or has
	// changed since the preview.
	Refused int `json:"refused"`
	// Missing contains the event ids without a dead letter.
	Missing []string `json:"missing,omitempty"`
	// Failed counts the dead letters whose replay failed.
	Failed int `json:"failed"`
	// Skipped describes the events that are not published, and the events that they no longer
	// block. The history of each dead letter contains the same.
	Skipped string   `json:"skipped,omitempty"`
	Errors  []string `json:"errors,omitempty"`
	// Job made the change.
	Job *jobView `json:"job,omitempty"`
}

// refuse counts a refused dead letter and keeps its error.
func (c *changed) refuse(err error) {
	c.Refused++
	if len(c.Errors) < dlqErrors {
		c.Errors = append(c.Errors, err.Error())
	}
}

// dlqErrors is the maximum number of errors in the output.
const dlqErrors = 10

// needsArchive returns an error if the action requires retention.archive and it is empty.
func needsArchive(spec *jobs.Spec) error {
	if spec.Action == dlq.ActionPurge {
		return cli.Usage(cli.WithHint(errors.New("retention.archive is empty: the dead letters would be lost"), "set --retention-archive; or delete them without an archive by --no-archive"))
	}
	return cli.Usage(cli.WithHint(errors.New("retention.archive is empty"), "--retention-archive names a folder, or a bucket such as s3://name?region=…"))
}

// target reads the selected dead letters: by ids, by object, or by the filter.
func (f *dlqChangeFlags) target(cmd *cobra.Command, conf *app.Config, s *dlq.Store, spec *jobs.Spec, ids []gocql.UUID) (deadLetters []dlq.DeadLetter, missing []string, err error) {
	if f.object != "" {
		events, err := f.objectIDs(cmd, conf)
		if err != nil {
			return nil, nil, err
		}
		if ids, err = eventIDs(events); err != nil {
			return nil, nil, err
		}
	}
	if spec.ByPriority {
		return byPriority(cmd.Context(), s, spec, ids)
	}
	if len(ids) > 0 {
		return readDeadLetters(cmd.Context(), s, ids)
	}
	deadLetters, _, err = collect(cmd, s, spec.Filter, f.Limit)
	return slices.DeleteFunc(deadLetters, func(l dlq.DeadLetter) bool { return !spec.Means(&l) }), nil, err
}

// change prints the preview of the job and, after the confirmation, creates and runs it. a
// is the archive, nil without one.
func (f *dlqChangeFlags) change(cmd *cobra.Command, conf *app.Config, s *dlq.Store, a jobs.Archive, spec jobs.Spec, ids []gocql.UUID) error {
	ctx, action := cmd.Context(), spec.Action
	js := jobs.New(s)
	if a == nil && (action == dlq.ActionRestore || action == dlq.ActionPurge && !f.noArchive) {
		return needsArchive(&spec)
	}
	var out changed
	deadLetters, missing, err := f.target(cmd, conf, s, &spec, ids)
	if err != nil {
		return err
	}
	out.Missing = missing
	named := len(ids) > 0 || f.object != ""
	var may []dlq.DeadLetter
	if out.Preview, may, err = js.Preview(ctx, &spec, deadLetters); err == nil {
		err = js.Estimate(ctx, &out.Preview, f.rate)
	}
	if err != nil {
		return err
	}
	if named {
		for i := range deadLetters {
			if err := js.Check(&spec, &deadLetters[i]); err != nil {
				out.refuse(err)
			}
		}
	}
	if f.output == "table" || !f.dryRun {
		printPreview(cmd.ErrOrStderr(), &out)
		if f.noArchive {
			fmt.Fprintln(cmd.ErrOrStderr(), "they go to no archive: payloads, errors and histories are lost")
		}
	}
	var jobErr error
	switch {
	case f.dryRun:
		out.DryRun = true
	case len(may) > 0:
		if action == dlq.ActionReplay {
			if err := f.healthy(cmd, conf, may); err != nil {
				return err
			}
		}
		if err := f.confirm(cmd, fmt.Sprintf("%s %s?", action, cli.Plural(len(may), "dead letter"))); err != nil {
			return err
		}
		job, err := f.create(cmd, js, a, narrow(js, spec, named, may))
		if job == nil {
			return err
		}
		jobErr = err
		out.Job = viewOfJob(job)
		out.Changed, out.Failed = job.Progress.Changed, job.Progress.Failed()
		out.Refused += job.Progress.SkippedAll()
	}
	out.Skipped = skipped(action, &out)
	if err := f.report(cmd, action, &out); jobErr == nil {
		return err
	}
	return jobErr // it has the details
}

// narrow returns the job for the dead letters of the preview.
func narrow(s *jobs.Store, spec jobs.Spec, named bool, may []dlq.DeadLetter) jobs.Spec {
	if named || spec.ByPriority || spec.Limit > 0 && len(may) <= jobs.MaxIDs {
		spec.Filter, spec.Limit = dlq.Filter{}, 0
		for i := range may { // only dead letters of the preview
			spec.IDs = append(spec.IDs, may[i].EventID)
		}
		return spec
	}
	spec.Filter.Status = slices.DeleteFunc(slices.Clone(spec.Filter.Status), func(st dlq.Status) bool {
		return s.Check(&spec, &dlq.DeadLetter{Status: st}) != nil
	})
	return spec
}

// report prints the result, and returns the error of the exit status.
func (f *dlqChangeFlags) report(cmd *cobra.Command, action dlq.Action, out *changed) error {
	w := cmd.OutOrStdout()
	var err error
	switch {
	case f.output != "table":
		err = cli.PrintAs(w, f.output, out)
	case !f.dryRun:
		fmt.Fprintf(w, "%s: %d changed, %d refused, %d failed again, %d not found\n", action, out.Changed, out.Refused, out.Failed, len(out.Missing))
		if out.Job != nil {
			printReport(w, out.Job)
		}
		if out.Skipped != "" {
			fmt.Fprintln(w, out.Skipped)
		}
	}
	for _, e := range out.Errors {
		fmt.Fprintln(cmd.ErrOrStderr(), "  "+cli.Clean(e, 300))
	}
	switch {
	case err != nil:
		return err
	case f.dryRun:
		return nil
	case out.Refused > 0 || len(out.Missing) > 0:
		return cli.QuietError{}
	case out.Job != nil:
		return out.Job.status()
	}
	return nil
}

// skipped describes the events that a change excludes from publishing, empty for none.
func skipped(action dlq.Action, c *changed) string {
	what, ok := map[dlq.Action]string{
		dlq.ActionDiscard: "never published", dlq.ActionResolve: "not published by the relay", dlq.ActionRelease: "published after later ones of their aggregates",
	}[action]
	if !ok || c.Changed == 0 {
		return ""
	}
	return fmt.Sprintf("skipped: %s, %s; events that they no longer block: %d", cli.Plural(c.Changed, "event"), what, c.Preview.Followers)
}

// readDeadLetters reads the dead letters of events, each once; missing contains the ids without one.
func readDeadLetters(ctx context.Context, s *dlq.Store, ids []gocql.UUID) (deadLetters []dlq.DeadLetter, missing []string, err error) {
	found, err := s.ReadMany(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	seen := make(map[gocql.UUID]bool)
	for _, id := range ids {
		if seen[id] {
			continue
		}
		seen[id] = true
		if l, ok := found[id]; ok {
			deadLetters = append(deadLetters, l)
		} else {
			missing = append(missing, id.String())
		}
	}
	return deadLetters, missing, nil
}

func printPreview(w io.Writer, out *changed) {
	p := &out.Preview
	fmt.Fprintf(w, "%s %s of %s", p.Action, cli.Plural(p.DeadLetters, "dead letter"), cli.Plural(p.Aggregates, "aggregate"))
	if p.Estimated >= 1 {
		by := map[string]string{"rate": "at the given rate", "jobs before": "by the rate of earlier jobs", "default rate": "by the default rate"}[p.EstimatedBy]
		fmt.Fprintf(w, ", in about %s %s", time.Duration(p.Estimated*float64(time.Second)).Round(time.Second), by)
	}
	fmt.Fprintln(w)
	counts(w, "by status", wide(p.ByStatus))
	counts(w, "by error", wide(p.ByClass))
	counts(w, "by topic", wide(p.ByTopic))
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
	counts(w, "not eligible for "+string(p.Action), wide(p.Refused))
	for _, id := range out.Missing {
		fmt.Fprintf(w, "event %s has no dead letter\n", id)
	}
}

func wide[K ~string](m map[K]int) map[K]int64 {
	out := make(map[K]int64, len(m))
	for k, n := range m {
		out[k] = int64(n)
	}
	return out
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
