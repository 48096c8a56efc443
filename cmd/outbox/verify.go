package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/load"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/internal/verify"
	"github.com/scylla-outbox/scylla-outbox/relay"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// verifyFlags contains the flags of verify that are not settings.
type verifyFlags struct {
	since, until, state, output string
	subscription                string
	topics                      []string
	rate, parallel              int
	fromFirst, repair, wait     bool
	repairWait                  time.Duration
	by                          dlqActor
}

func newVerifyCommand() *cobra.Command {
	var f verifyFlags
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Prove that every event of the outbox is in its topic, once and in order",
		Long: `Prove that every event of the outbox is in its topic, once and in order.

The command scans the outbox table, or with relay.tables the one of them that
--relay-table KEYSPACE.TABLE names, by token range and then reads the topics. It
lists every event that is missing, duplicate or out of sequence, every gap in the
sequence numbers of an aggregate, every row that is not a valid event, every event of
a topic whose row the database has lost, and every event with the number of another
one. The last line is the verdict. An event that a restore of the database has undone is undone, and no problem, once
outbox schema new-epoch has begun an epoch.

Exit status: 0 events were checked, without a problem; 1 a problem, or the check
failed; 2 wrong command line or configuration; 3 no event could be checked, for
example because all of them are too young.

Events younger than the relay's confidence window and ` + app.VerifyMargin.String() + ` are not checked, nor are
events with a later delivery time: they may not be in a topic yet. With --wait-old the
command first waits until the present events are old enough. Expired rows and
records that a topic has deleted are not problems. An event with a dead letter is
not missing: it is a dead letter, blocked by one of its aggregate, or discarded or
resolved by an operator. These do not change the exit status. A replayed dead letter
must be in its topic.

With --repair the command asks the running relay to publish the missing events, and
reports the result of each. It requires --reason, which the audit trail records. The
exit status is then 0 if all of them were published and no other problem was found.
Dead letters are not repaired: use outbox dlq. Events of a relay that is only late
need no repair; the command waits for them.

With --subscription NAME the command instead accounts for the topics of a
subscription: every offset is settled, waiting, stored, or lost because the topic
deleted it first. It also finds wrong positions and replays that nobody delivers.

The command has no --api-admin-url: it reads the whole outbox and the topics, for hours, which is
more than a request of the admin API may do. It needs the database and Kafka. While a
broker restarts it waits; when no partition could be read for a minute, it ends with an
error and without a verdict.

Memory is 100 bytes per event, whatever its payload. With --resume FILE the command
keeps its progress in the file, and the same command continues after an
interruption.`,
		Args: cobra.NoArgs,
		RunE: app.WithConfig(func(cmd *cobra.Command, c *app.Config) error { return runVerify(c, cmd, f) }),
	}
	fl := cmd.Flags()
	fl.StringVar(&f.since, "since", "", "check events written since a date, a time (RFC 3339) or an age such as 24h; UTC")
	fl.StringVar(&f.until, "until", "", "check events written before; a date includes its day; default now less the confidence window and "+app.VerifyMargin.String())
	fl.BoolVar(&f.wait, "wait-old", false, "wait until the events before --until (default now) are old enough")
	fl.StringSliceVar(&f.topics, "more-topics", nil, "additional topics, such as those of an earlier configuration")
	fl.IntVar(&f.rate, "rate", verifyRate, "maximum number of rows per second; 0 is no limit")
	fl.IntVar(&f.parallel, "parallel", verify.DefaultParallel, "token ranges read concurrently")
	fl.BoolVar(&f.fromFirst, "from-first", false, "report a gap if an aggregate does not start with 1, as nothing has expired")
	fl.BoolVar(&f.repair, "repair", false, "let the running relay publish missing events")
	fl.DurationVar(&f.repairWait, "repair-wait", 10*time.Minute, "maximum wait for its answers")
	fl.StringVar(&f.by.reason, "reason", "", "reason, recorded in the audit trail; required for --repair")
	fl.StringVar(&f.by.actor, "actor", "", "actor, recorded in the audit trail (default the user of this machine)")
	fl.StringVar(&f.state, "resume", "", "keep the progress in this file and continue from it")
	fl.StringVar(&f.subscription, "subscription", "", "account for the messages of this subscription instead")
	cli.OutputFlag(cmd, &f.output)
	app.AddFlags(cmd, app.SectionScylla, app.SectionKafka, app.SectionRelay)
	return cmd
}

const (
	// verifyRate is the default of --rate, in rows per second: a fraction of what a node
	// serves, so that writers keep their latency.
	verifyRate = 20_000
	// verifyShown is the number of findings of a kind in the text.
	verifyShown = 20
)

// window returns the events to check, and the time to wait first.
func (f *verifyFlags) window(confidence time.Duration, now time.Time) (w verify.Window, wait time.Duration, err error) {
	w.FromFirst, w.Until = f.fromFirst, now
	if !f.wait {
		w.Until = now.Add(-confidence - app.VerifyMargin)
	}
	if f.since != "" {
		if w.Since, _, err = cli.DateOrTime(f.since, now); err != nil {
			return w, 0, cli.Usage(fmt.Errorf("--since %w", err))
		}
	}
	if f.until != "" {
		until, day, err := cli.DateOrTime(f.until, now)
		if err != nil {
			return w, 0, cli.Usage(fmt.Errorf("--until %w", err))
		}
		if day && until.AddDate(0, 0, 1).Before(w.Until) {
			w.Until = until.AddDate(0, 0, 1)
		} else if !day {
			w.Until = until
		}
	}
	if !w.Since.Before(w.Until) {
		return w, 0, cli.Usage(fmt.Errorf("--since %s is not before --until %s", w.Since.Format(time.RFC3339), w.Until.Format(time.RFC3339)))
	}
	if f.wait {
		wait = max(0, w.Until.Add(confidence+app.VerifyMargin).Sub(now))
	}
	return w, wait, nil
}

func runVerify(c *app.Config, cmd *cobra.Command, f verifyFlags) error {
	if f.subscription != "" {
		return verifySubscription(c, cmd, &f)
	}
	if f.rate < 0 || f.parallel < 1 {
		return cli.Usage(errors.New("--rate must not be negative, and --parallel at least 1"))
	}
	if f.repair {
		if err := reasonRequired(f.by.reason, "without --repair the command only checks"); err != nil {
			return err
		}
	}
	if _, _, err := f.window(c.Relay.ConfidenceWindow, time.Now()); err != nil {
		return err
	}
	conf, err := c.Only()
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	c.Scylla.Need(schema.Core)
	session, disconnect, err := c.Connect(ctx)
	if err != nil {
		return err
	}
	defer disconnect()
	deadLetters, err := dlq.Open(session, c.Scylla.Keyspace, c.DLQOptions()...)
	if err != nil {
		return err
	}
	ahead, _, err := relay.ClockAhead(ctx, session) // rows have the database's time
	if err != nil {
		return err
	}
	window, wait, err := f.window(c.Relay.ConfidenceWindow, time.Now().Add(-ahead))
	if err != nil {
		return err
	}
	if wait > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "waiting %s until the events written before %s are old enough\n", wait.Round(time.Second), window.Until.UTC().Format(time.RFC3339))
		if err := retry.Wait(ctx, wait); err != nil {
			return fmt.Errorf("interrupted: %w", err)
		}
	}
	v, err := c.Verification(ctx, &conf, session)
	if err != nil {
		return err
	}
	window.Epochs = v.Window.Epochs
	v.Scan.Rate, v.Scan.Parallel = f.rate, f.parallel
	v.Topics = append(v.Topics, f.topics...)
	v.Window, v.State = window, f.state
	if c.Scylla.Has(schema.DeadLetters) {
		v.DeadLetters = app.DeadLettersOf{Store: deadLetters, Table: app.TableName(&conf)}
	}
	if err := load.Showing(ctx, verifyProgress(cmd.ErrOrStderr(), v), func() error { return v.Run(ctx) }); err != nil {
		return verifyError(ctx, err, f.state)
	}
	if v.Resumed() {
		fmt.Fprintf(cmd.ErrOrStderr(), "continued from %s, with its --since and --until\n", f.state)
	}
	var repairs *repairs
	if f.repair {
		if repairs, err = f.repairAudited(c, cmd, v, session, &conf); err != nil {
			return err
		}
	}
	counts, err := printVerified(cmd.OutOrStdout(), f.output, v, repairs)
	switch {
	case err != nil:
		return err
	case repairs.verdict(counts) == verify.VerdictProblems:
		return cli.QuietError{}
	case repairs.verdict(counts) == verify.VerdictNothingChecked:
		return cli.WaitsError{}
	}
	return nil
}

// verifyError adds a hint to an error.
func verifyError(ctx context.Context, err error, state string) error {
	switch {
	case errors.Is(err, verify.ErrOtherState):
		return cli.WithHint(err, "remove it to start from the beginning, or name another file with --resume")
	case ctx.Err() != nil && state != "":
		return cli.WithHint(fmt.Errorf("interrupted: %w", err), "the same command continues from %s", state)
	case ctx.Err() != nil:
		return cli.WithHint(fmt.Errorf("interrupted: %w", err), "with --resume FILE the next run continues from here")
	case state != "":
		return cli.WithHint(err, "the same command continues from %s", state)
	}
	return err
}

// verifyProgress shows the number of scanned ranges, then of read records.
func verifyProgress(w io.Writer, v *verify.Verification) *cli.Progress {
	return cli.NewProgress(w, func() cli.Work {
		p := v.Progress()
		work := cli.Work{Done: p.Done, Total: p.Total, Detail: "records of the topics"}
		if !p.Reading {
			work.Detail = fmt.Sprintf("ranges of the outbox, %d rows", p.Rows)
		}
		return work
	})
}

// verified is the summary as JSON.
type verified struct {
	Table   string    `json:"table"`
	Since   time.Time `json:"since,omitzero"`
	Until   time.Time `json:"until"`
	Resumed bool      `json:"resumed"`
	verify.Counts
	Repair  *repairs       `json:"repair,omitempty"`
	Verdict verify.Verdict `json:"verdict"`
	OK      bool           `json:"ok"`
}

// printVerified prints a table, or one object: every finding, then the summary.
func printVerified(w io.Writer, output string, v *verify.Verification, repairs *repairs) (counts verify.Counts, err error) {
	if output == "table" {
		return printVerifiedTable(w, v, repairs)
	}
	err = printFindingsAs(w, output, func(each func(verify.Finding)) any {
		counts = v.Ledger().Check(v.Window, each)
		verdict := repairs.verdict(counts)
		return verified{v.Keyspace + "." + v.Table, v.Window.Since, v.Window.Until.UTC(), v.Resumed(), counts, repairs, verdict, verdict == verify.VerdictOK}
	})
	return counts, err
}

// printFindingsAs is printFindingsJSON for JSON or YAML.
func printFindingsAs(w io.Writer, output string, check func(each func(verify.Finding)) (summary any)) error {
	if output == "json" {
		return printFindingsJSON(w, check)
	}
	var out bytes.Buffer
	if err := printFindingsJSON(&out, check); err != nil {
		return err
	}
	return cli.PrintAs(w, output, json.RawMessage(out.Bytes()))
}

// printFindingsJSON prints one object: the findings that check passes, and the members of the object
// that it returns. The findings are written as they are found, because there may be many.
func printFindingsJSON(w io.Writer, check func(each func(verify.Finding)) (summary any)) error {
	var err error
	put := func(lead string, x any) {
		b, e := json.Marshal(x)
		if e == nil {
			_, e = fmt.Fprintf(w, "%s%s", lead, b)
		}
		err = errors.Join(err, e)
	}
	lead := `{"findings":[`
	summary := check(func(f verify.Finding) {
		if err == nil {
			put(lead, f)
		}
		lead = ",\n"
	})
	if lead == `{"findings":[` {
		_, err = io.WriteString(w, lead)
	}
	b, e := json.Marshal(summary)
	if err = errors.Join(err, e); err == nil {
		_, err = fmt.Fprintf(w, "],%s\n", b[1:])
	}
	return err
}

// printVerifiedTable prints the first findings of each kind and a summary.
func printVerifiedTable(w io.Writer, v *verify.Verification, repairs *repairs) (verify.Counts, error) {
	var out strings.Builder
	found := findings{out: &out}
	c := v.Ledger().Check(v.Window, found.add)
	found.end()
	since := "from the first event"
	if !v.Window.Since.IsZero() {
		since = "since " + v.Window.Since.UTC().Format(time.RFC3339)
	}
	fmt.Fprintf(&out, "%s.%s, written %s until %s:\n", v.Keyspace, v.Table, since, v.Window.Until.UTC().Format(time.RFC3339))
	fmt.Fprintf(&out, "%d events, %d in their topics: %d missing, %d double, %d out of order, %d gaps, %d unreadable rows\n",
		c.Rows, c.Published, c.Missing, c.Doubles, c.Disorder, c.Gaps, c.Unreadable)
	for _, x := range []struct {
		n    int64
		text string
	}{
		{c.Young, "too young to be checked"},
		{c.Pending, "pending: written or delivered later"},
		{c.Dead, "with a dead letter: outbox dlq list shows them"},
		{c.Blocked, "blocked by a dead letter of their aggregate"},
		{c.Closed, "with a closed dead letter: discarded or resolved by an operator"},
		{c.Untold, "undetermined: the topic has deleted records of that age"},
		{c.Unknown, "in a topic without a row in the outbox: lost by the database, deleted, or undone by a restore without outbox schema new-epoch"},
		{c.Conflicts, "with the number of another event: two writers gave it, or it was given again after a restore without outbox schema new-epoch"},
		{c.Undone, "in a topic, undone by a restore of the database: of an earlier epoch, and without a row"},
		{c.Foreign, "records in the topics that are not events of this outbox"},
	} {
		if x.n > 0 {
			fmt.Fprintf(&out, "%d %s\n", x.n, x.text)
		}
	}
	repairs.print(&out)
	printVerdict(&out, c, repairs.verdict(c))
	_, err := io.WriteString(w, out.String())
	return c, err
}

// findings prints the first findings of each kind, at most verifyShown.
type findings struct {
	out   *strings.Builder
	shown map[verify.Kind]int
}

func (s *findings) add(f verify.Finding) {
	if s.shown == nil {
		s.shown = make(map[verify.Kind]int)
	}
	if s.shown[f.Kind]++; s.shown[f.Kind] > verifyShown {
		return
	}
	fmt.Fprintf(s.out, "%-10s  event %s  aggregate %s seq %d", f.Kind, f.Event, f.Aggregate, f.Seq)
	switch {
	case f.Offset != nil:
		fmt.Fprintf(s.out, "  %s[%d]@%d", f.Topic, *f.Partition, *f.Offset)
	case f.Topic != "":
		fmt.Fprintf(s.out, "  topic %s", f.Topic)
	}
	if f.Detail != "" {
		fmt.Fprintf(s.out, "  (%s)", f.Detail)
	}
	s.out.WriteByte('\n')
}

// end prints the numbers of findings that are not shown.
func (s *findings) end() {
	for _, k := range []verify.Kind{verify.Missing, verify.Double, verify.Disorder, verify.Gap, verify.UnreadableRow, verify.Unknown, verify.Conflict, verify.Undone, verify.Dead, verify.Blocked, verify.Closed} {
		if more := s.shown[k] - verifyShown; more > 0 {
			fmt.Fprintf(s.out, "%-10s  and %d more; -o json lists them all\n", k, more)
		}
	}
}

// printVerdict prints the last line.
func printVerdict(out *strings.Builder, c verify.Counts, verdict verify.Verdict) {
	switch {
	case verdict == verify.VerdictProblems:
		out.WriteString("verdict: problems found\n")
	case verdict == verify.VerdictOK && c.Young > 0:
		fmt.Fprintf(out, "verdict: ok; %d events are too young and were not checked\n", c.Young)
	case verdict == verify.VerdictOK:
		out.WriteString("verdict: ok\n")
	case c.Young > 0:
		fmt.Fprintf(out, "verdict: nothing checked: all %d events are too young; --wait-old waits for them\n", c.Young)
	default:
		out.WriteString("verdict: nothing checked: no event of that time can be checked\n")
	}
}
