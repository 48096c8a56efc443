package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
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
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

// dlqChange is a command that changes letters.
type dlqChange struct {
	action      dlq.Action
	short, long string
}

var dlqChanges = []dlqChange{
	{
		dlq.ActionReplay, "Have the relay publish letters now",
		`Have the relay publish letters now, in the order of their aggregates. Letters
parked behind them follow by themselves. One that fails again waits as before.

Before that it looks whether a relay runs, whether its breaker is closed and
whether the broker answers; --force goes on all the same. Afterwards it waits for
what becomes of the letters, for as long as --wait says.`,
	},
	{
		dlq.ActionDiscard, "Give letters up for good: they will never be published",
		`Give letters up for good: they will never be published, and consumers lack them.
The letters stay to be looked at; those parked behind them go on.`,
	},
	{
		dlq.ActionRelease, "Let the later events of an aggregate pass a letter",
		`Let the later events of an aggregate pass a letter. The letter stays, manual, and
can be replayed later, out of order, or discarded.`,
	},
	{
		dlq.ActionResolve, "Close letters that were settled elsewhere",
		`Close letters that were settled elsewhere, such as by hand in the systems that
consume them. They will not be published; those parked behind them go on.`,
	},
	{
		dlq.ActionPark, "Put letters aside: no automatic replay until somebody says so",
		`Put letters aside: they are manual, not replayed by themselves, and hold back the
later events of their aggregates until they are replayed, discarded or released.`,
	},
}

// dlqChangeFlags are those of every change.
type dlqChangeFlags struct {
	dlqFilter
	dlqConfirm
	dlqActor
	dlqRun
	all, canary, force, noArchive bool
	output, object                string
	rate                          float64
	batchSize                     int
}

func newDLQChangeCommand(c dlqChange) *cobra.Command {
	var f dlqChangeFlags
	cmd := &cobra.Command{
		Use:   string(c.action) + " [EVENT_ID...]",
		Short: c.short,
		Long: c.long + `

Name events, or say which by filters, or --all. Without --status
` + meantWithout[c.action] + ` letters are meant. What would be done is shown first.
It is done by a job, which is kept: an interruption pauses it, and
'outbox dlq jobs resume' goes on.`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			ids, err := eventIDs(args)
			if err != nil {
				return err
			}
			spec, err := f.check(c.action, len(ids) > 0 || f.object != "", time.Now())
			if err != nil {
				return err
			}
			if len(ids) > 0 && f.object != "" {
				return cli.Usage(errors.New("event ids and --object do not go together: use one or the other"))
			}
			return withDLQConfig(cmd, func(conf *app.Config, s *dlq.Store) error {
				return withKeeper(conf, cmd, s, func(a jobs.Archive) error { return f.change(cmd, conf, s, a, spec, ids) })
			})
		},
	}
	f.dlqFilter.addFlags(cmd, 0)
	f.dlqConfirm.addFlags(cmd)
	f.dlqActor.addFlags(cmd, "history")
	f.dlqRun.addFlags(cmd, c.action == dlq.ActionReplay)
	fl := cmd.Flags()
	fl.BoolVar(&f.all, "all", false, "all letters that are meant without --status, without any filter")
	fl.Float64Var(&f.rate, "rate", 0, "letters per second at most; 0 means as fast as it goes")
	size := jobs.DefaultBatchSize
	sections := []string{app.SectionScylla}
	switch c.action {
	case dlq.ActionPurge:
		size = jobs.MaxBatchSize
		fl.BoolVar(&f.force, "force", false, "failed and manual letters too")
		fl.BoolVar(&f.noArchive, "no-archive", false, "lose the letters: write them to no archive")
		sections = append(sections, app.SectionRetention)
	case dlq.ActionRestore:
		fl.StringVar(&f.object, "object", "", "all letters of this object that are archived")
		sections = append(sections, app.SectionRetention)
	case dlq.ActionReplay:
		fl.BoolVar(&f.canary, "canary", false, "begin with 1, 2, 5 and 20 letters, and pause if one dies of the same error again")
		fl.BoolVar(&f.force, "force", false, "replay though no relay, breaker or broker is well")
		sections = append(sections, app.SectionKafka)
	}
	fl.IntVar(&f.batchSize, "batch-size", size, "letters between two saves of the job's progress")
	cli.OutputFlag(cmd, &f.output)
	app.AddFlags(cmd, sections...)
	return cmd
}

// meantWithout says which letters are meant without --status.
var meantWithout = map[dlq.Action]string{
	dlq.ActionReplay: "only open", dlq.ActionDiscard: "only open", dlq.ActionRelease: "only open",
	dlq.ActionResolve: "only open", dlq.ActionPark: "only open",
	dlq.ActionPurge: "resolved and archived", dlq.ActionRestore: "archived",
}

// dlqConfirm are the flags of what asks before it changes something.
type dlqConfirm struct{ dryRun, yes bool }

func (f *dlqConfirm) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&f.dryRun, "dry-run", false, "only show what would be done")
	cmd.Flags().BoolVarP(&f.yes, "yes", "y", false, "do it without asking")
}

// dlqActor are the flags that say who changes something, and why.
type dlqActor struct{ reason, actor string }

// AddFlags adds them; keeper is what has it afterwards: history or audit.
func (f *dlqActor) addFlags(cmd *cobra.Command, keeper string) {
	cmd.Flags().StringVar(&f.reason, "reason", "", "why; kept in the "+keeper)
	cmd.Flags().StringVar(&f.actor, "actor", "", "who; kept in the "+keeper+" (default the user of this machine)")
}

// by is who changes something.
func (f *dlqActor) by() dlq.Actor {
	by := dlq.Actor{Name: f.actor, Reason: f.reason}
	if by.Name == "" {
		by.Name = thisUser()
	}
	return by
}

// scope returns the filter that the flags of a change mean, and refuses what says
// too much or too little: named says that the command line has event ids, all
// that it has --all.
func (f *dlqFilter) scope(named, all bool, output string, now time.Time) (dlq.Filter, error) {
	filter, err := f.filter(now)
	if err == nil {
		err = cli.CheckOutput(output)
	}
	switch {
	case err != nil:
		return filter, err
	case named && (!f.empty() || all || f.Limit != 0):
		return filter, cli.Usage(errors.New("event ids and filters do not go together: use one or the other"))
	case !named && f.empty() && !all:
		return filter, cli.Usage(errors.New("which letters? name event ids, use a filter such as --error-type, or --all"))
	case all && !f.empty():
		return filter, cli.Usage(errors.New("--all and filters do not go together: use one or the other"))
	}
	return filter, nil
}

// check returns the job that the flags mean; named says that the command line
// names the letters.
func (f *dlqChangeFlags) check(action dlq.Action, named bool, now time.Time) (jobs.Spec, error) {
	spec := jobs.Spec{
		Action: action, Rate: f.rate, BatchSize: f.batchSize, Canary: f.canary, Follow: f.follow(), Limit: f.Limit,
		Force: f.force && action == dlq.ActionPurge, NoArchive: f.noArchive,
	}
	var err error
	spec.Filter, err = f.scope(named, f.all, f.output, now)
	switch {
	case err != nil:
		return spec, err
	case f.rate < 0:
		return spec, cli.Usage(fmt.Errorf("--rate %v must not be negative", f.rate))
	case f.canary && spec.Follow < 0:
		return spec, cli.Usage(errors.New("--canary waits for what becomes of letters: use it with --wait, or --detach"))
	case f.batchSize < 1 || f.batchSize > jobs.MaxBatchSize:
		return spec, cli.Usage(fmt.Errorf("--batch-size %d must be 1 to %d", f.batchSize, jobs.MaxBatchSize))
	}
	if len(spec.Filter.Status) == 0 {
		spec.Filter.Status = spec.Statuses()
	}
	if !named && (spec.Filter.Until.IsZero() || spec.Filter.Until.After(now)) {
		spec.Filter.Until = now.UTC() // what dies after the preview is not meant
	}
	return spec, nil
}

// changed is what a change prints as JSON.
type changed struct {
	Preview jobs.Preview `json:"preview"`
	DryRun  bool         `json:"dry_run,omitempty"`
	Changed int          `json:"changed"`
	// Refused are letters that were named and stand where the action cannot begin,
	// and those that moved on since the preview.
	Refused int `json:"refused"`
	// Missing are event ids that have no letter.
	Missing []string `json:"missing,omitempty"`
	// Failed are letters that were replayed and died again.
	Failed int `json:"failed"`
	// Skipped says what the change leaves out and what goes on behind it; the
	// letters' histories say it of each.
	Skipped string   `json:"skipped,omitempty"`
	Errors  []string `json:"errors,omitempty"`
	// Job did it.
	Job *jobView `json:"job,omitempty"`
}

// refuse counts a letter that was refused.
func (c *changed) refuse(err error) {
	c.Refused++
	if len(c.Errors) < dlqErrors {
		c.Errors = append(c.Errors, err.Error())
	}
}

// dlqErrors is how many errors are shown.
const dlqErrors = 10

// needsArchive refuses what needs retention.archive where there is none.
func needsArchive(spec *jobs.Spec) error {
	if spec.Action == dlq.ActionPurge {
		return cli.Usage(cli.WithHint(errors.New("retention.archive is empty: the letters would be lost"), "--retention-archive names an archive; --no-archive loses them"))
	}
	return cli.Usage(cli.WithHint(errors.New("retention.archive is empty: there is no archive"), "--retention-archive names a folder, or a bucket such as s3://name?region=…"))
}

// target reads the letters that are meant: of ids, of an object, or of the filter.
func (f *dlqChangeFlags) target(cmd *cobra.Command, conf *app.Config, s *dlq.Store, spec *jobs.Spec, ids []gocql.UUID) (letters []dlq.DeadLetter, missing []string, err error) {
	if f.object != "" {
		events, err := f.objectIDs(cmd, conf)
		if err != nil {
			return nil, nil, err
		}
		if ids, err = eventIDs(events); err != nil {
			return nil, nil, err
		}
	}
	if len(ids) > 0 {
		return readLetters(cmd.Context(), s, ids)
	}
	letters, _, err = collect(cmd, s, spec.Filter, f.Limit)
	return slices.DeleteFunc(letters, func(l dlq.DeadLetter) bool { return !spec.Means(&l) }), nil, err
}

// change shows what the job would do and, once that is confirmed, makes it and
// runs it. a is the archive, nil without one.
func (f *dlqChangeFlags) change(cmd *cobra.Command, conf *app.Config, s *dlq.Store, a jobs.Archive, spec jobs.Spec, ids []gocql.UUID) error {
	ctx, action := cmd.Context(), spec.Action
	js := jobs.New(s)
	if a == nil && (action == dlq.ActionRestore || action == dlq.ActionPurge && !f.noArchive) {
		return needsArchive(&spec)
	}
	var out changed
	letters, missing, err := f.target(cmd, conf, s, &spec, ids)
	if err != nil {
		return err
	}
	out.Missing = missing
	named := len(ids) > 0 || f.object != ""
	var may []dlq.DeadLetter
	if out.Preview, may, err = js.Preview(ctx, &spec, letters); err == nil {
		err = js.Estimate(ctx, &out.Preview, f.rate)
	}
	if err != nil {
		return err
	}
	if named {
		for i := range letters {
			if err := js.Check(&spec, &letters[i]); err != nil {
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
		if err := f.confirm(cmd, fmt.Sprintf("%s %s?", action, cli.Plural(len(may), "letter"))); err != nil {
			return err
		}
		job, err := f.dlqRun.create(cmd, js, a, narrow(js, spec, named, may), f.by())
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
	return jobErr // it says more
}

// narrow is the job that changes the letters of the preview.
func narrow(s *jobs.Store, spec jobs.Spec, named bool, may []dlq.DeadLetter) jobs.Spec {
	if named || spec.Limit > 0 && len(may) <= jobs.MaxIDs {
		spec.Filter, spec.Limit = dlq.Filter{}, 0
		for i := range may { // those that were shown, and no other
			spec.IDs = append(spec.IDs, may[i].EventID)
		}
		return spec
	}
	spec.Filter.Status = slices.DeleteFunc(slices.Clone(spec.Filter.Status), func(st dlq.Status) bool {
		return s.Check(&spec, &dlq.DeadLetter{Status: st}) != nil
	})
	return spec
}

// report prints what was done, and returns the error that the exit status is of.
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

// skipped is what a change left out, in words; empty if it leaves out nothing.
func skipped(action dlq.Action, c *changed) string {
	what, ok := map[dlq.Action]string{
		dlq.ActionDiscard: "never published", dlq.ActionResolve: "not published by the relay", dlq.ActionRelease: "passed by later ones of their aggregates",
	}[action]
	if !ok || c.Changed == 0 {
		return ""
	}
	return fmt.Sprintf("skipped: %s, %s; dead letters behind them that go on: %d", cli.Plural(c.Changed, "event"), what, c.Preview.Followers)
}

// readLetters reads the letters of events, each once; missing have none.
func readLetters(ctx context.Context, s *dlq.Store, ids []gocql.UUID) (letters []dlq.DeadLetter, missing []string, err error) {
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
			letters = append(letters, l)
		} else {
			missing = append(missing, id.String())
		}
	}
	return letters, missing, nil
}

func printPreview(w io.Writer, out *changed) {
	p := &out.Preview
	fmt.Fprintf(w, "%s %s of %s", p.Action, cli.Plural(p.DeadLetters, "letter"), cli.Plural(p.Aggregates, "aggregate"))
	if p.Estimated >= 1 {
		by := map[string]string{"rate": "at the given rate", "jobs before": "as jobs before went", "default rate": "as no job was made before"}[p.EstimatedBy]
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
		fmt.Fprintf(w, "parked behind them%s: %s\n", more, cli.Plural(p.Followers, "letter"))
	}
	counts(w, "left as they are, since "+string(p.Action)+" cannot begin there", wide(p.Refused))
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

// confirm returns nil if the change may be made.
func (f *dlqConfirm) confirm(cmd *cobra.Command, question string) error {
	if f.yes {
		return nil
	}
	in, isFile := cmd.InOrStdin().(*os.File)
	if !isFile || !term.IsTerminal(int(in.Fd())) {
		return cli.Usage(cli.WithHint(errors.New("nothing was changed: there is no terminal to ask on"), "--yes does it without asking"))
	}
	return ask(in, cmd.ErrOrStderr(), question)
}

// ask asks a question to which only yes is an assent.
func ask(in io.Reader, out io.Writer, question string) error {
	fmt.Fprintf(out, "%s Type yes to go on: ", question)
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	if strings.ToLower(strings.TrimSpace(line)) != "yes" {
		return errors.New("nothing was changed")
	}
	return nil
}

// thisUser names who runs the command.
func thisUser() string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	return "unknown"
}
