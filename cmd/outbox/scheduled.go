package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"time"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/schedule"
)

func newScheduledCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "scheduled",
		Short: "List messages that wait for their time; release or take back many",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newScheduledListCommand(),
		newScheduledChangeCommand(scheduledChange{
			name: "release", action: "release-messages", done: "released", one: (*messages.Service).ReleaseMany,
			short: "Have messages go out now that wait for their time",
			what:  "Those that are not due yet become due at once, and go out as fast as relay.schedule_rate lets\nthem. Until then they can be taken back.",
		}),
		newScheduledChangeCommand(scheduledChange{
			name: "cancel", action: "cancel-messages", done: "taken back", due: true, one: (*messages.Service).CancelMany,
			short: "Take back messages that wait for their time",
			what:  "They are never published, and their payloads are removed at once. This cannot be undone.",
		}),
	)
	return cmd
}

// scheduledChange is what is done with many messages.
type scheduledChange struct {
	name, action, done, short, what string
	due                             bool // those that are due already, too
	one                             func(*messages.Service, context.Context, messages.Many, int, float64) (messages.Tally, messages.Changed, messages.Rest, error)
}

// scheduledFlags say which messages, and how they are changed.
type scheduledFlags struct {
	scheduledChange
	scheduledFilter
	dlqConfirm
	dlqActor
	all    bool
	rate   float64
	output string
}

func newScheduledChangeCommand(change scheduledChange) *cobra.Command {
	f := scheduledFlags{scheduledChange: change}
	cmd := &cobra.Command{
		Use:   change.name,
		Short: change.short,
		Long: change.short + `.

` + change.what + `

Say which by flags. What would be done is counted first. On a terminal it asks;
elsewhere it needs --yes. What is handed in after the command began is not meant.
Running it again is harmless: it does what is left to do. The audit has it.

Exit status: 0 all of them were ` + change.done + `, or had gone by themselves; 1 it failed;
2 the command line or the configuration is wrong.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			many, err := f.many(time.Now())
			if err == nil {
				err = cli.CheckOutput(f.output)
			}
			if err != nil {
				return err
			}
			c, err := app.LoadConfig(cmd)
			if err != nil {
				return cli.Usage(err)
			}
			return changeScheduled(c, cmd, &f, many)
		},
	}
	f.scheduledFilter.addFlags(cmd)
	fl := cmd.Flags()
	fl.BoolVar(&f.all, "all", false, "all messages that wait")
	fl.Float64Var(&f.rate, "rate", 0, "this many in a second at most; 0 means as fast as it goes")
	f.dlqConfirm.addFlags(cmd)
	f.dlqActor.addFlags(cmd, "audit")
	cli.OutputFlag(cmd, &f.output)
	app.AddFlags(cmd, app.SectionScylla, app.SectionLog)
	return cmd
}

// many is what the flags mean.
func (f *scheduledFlags) many(now time.Time) (messages.Many, error) {
	m, err := f.filter(now)
	if m.Due = f.due; m.CreatedUntil.IsZero() {
		m.CreatedUntil = now
	}
	switch {
	case err != nil:
		return m, err
	case f.empty() && !f.all:
		return m, cli.Usage(errors.New("which messages? use a flag such as --topic or --client, or --all"))
	case !f.empty() && f.all:
		return m, cli.Usage(errors.New("--all and filters do not go together: use one or the other"))
	case f.rate != 0 && !(f.rate >= messages.MinRate):
		return m, cli.Usage(fmt.Errorf("--rate %g: must be %g or more; 0 is as fast as it goes", f.rate, messages.MinRate))
	}
	return m, nil
}

// scheduledReport is what the command prints as JSON.
type scheduledReport struct {
	DryRun bool `json:"dry_run,omitempty"`
	messages.Tally
	messages.Changed
}

// scheduled opens a session, which is the caller's to close, and what works on messages
// by it.
func scheduled(c *app.Config, log *slog.Logger) (*gocql.Session, *messages.Service, error) {
	consistency, _ := c.Scylla.Consistencies()
	session, err := c.Scylla.Session(c.Scylla.Keyspace)
	if err != nil {
		return nil, nil, err
	}
	service, err := messages.NewService(session, messages.Config{Consistency: consistency, Logger: log})
	if err != nil {
		sessions.Close(session)
		return nil, nil, cli.Usage(err)
	}
	return session, service, nil
}

func changeScheduled(c *app.Config, cmd *cobra.Command, f *scheduledFlags, many messages.Many) error {
	ctx := cmd.Context()
	log, err := c.Log.Logger(cmd.ErrOrStderr())
	if err != nil {
		return cli.Usage(err)
	}
	session, service, err := scheduled(c, log)
	if err != nil {
		return err
	}
	defer sessions.Close(session)
	report := scheduledReport{DryRun: f.dryRun, Tally: messages.NewTally()}
	err = toTheEnd(ctx, many, func(many messages.Many) (messages.Rest, error) {
		t, rest, err := service.Count(ctx, many)
		if err == nil {
			report.Merge(&t)
		}
		return rest, err
	})
	if err != nil {
		return err
	}
	if report.Messages == 0 && f.output == "table" {
		_, err = fmt.Fprintln(cmd.ErrOrStderr(), noneScheduled)
		return err
	}
	if report.Messages > 0 && (f.output == "table" || !f.dryRun) {
		f.preview(cmd.ErrOrStderr(), &report.Tally)
	}
	if report.Messages > 0 && !f.dryRun {
		if err := f.confirm(cmd, fmt.Sprintf("%s %s?", f.name, cli.Plural(report.Messages, "message"))); err != nil {
			return err
		}
		if err := f.change(ctx, c.Scylla.Keyspace, session, service, log, many, &report); err != nil {
			return fmt.Errorf("%w; %d were %s before, and the same command does the rest", err, report.Changed.Changed, f.done)
		}
	}
	if f.output != "table" {
		return cli.PrintAs(cmd.OutOrStdout(), f.output, &report)
	}
	if !f.dryRun {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d %s, %d had gone before\n", f.name, report.Changed.Changed, f.done, report.Gone)
	}
	return err
}

// change makes the change, and has the audit say so.
func (f *scheduledFlags) change(ctx context.Context, keyspace string, session *gocql.Session, service *messages.Service, log *slog.Logger, many messages.Many, report *scheduledReport) error {
	detail, err := json.Marshal(struct {
		Topic        string    `json:"topic,omitempty"`
		Key          string    `json:"key,omitempty"`
		Client       string    `json:"client,omitempty"`
		From         time.Time `json:"from,omitzero"`
		Until        time.Time `json:"until,omitzero"`
		CreatedFrom  time.Time `json:"created_from,omitzero"`
		CreatedUntil time.Time `json:"created_until,omitzero"`
		Messages     int       `json:"messages"`
	}{many.Topic, many.Key, many.Client, many.After.DeliverAt.UTC(), many.Until.UTC(), many.CreatedFrom, many.CreatedUntil.UTC(), report.Messages})
	if err != nil {
		return err
	}
	by := f.by()
	change := admin.Change{Actor: by.Name, Action: f.action, Detail: string(detail), Reason: by.Reason}
	return admin.AuditedWithResult(ctx, session, keyspace, log, change, func(ctx context.Context) (string, error) {
		err := toTheEnd(ctx, many, func(many messages.Many) (messages.Rest, error) {
			_, done, rest, err := f.one(service, ctx, many, messages.MaxMany, f.rate)
			report.Changed.Changed += done.Changed
			report.Gone += done.Gone
			return rest, err
		})
		said, _ := json.Marshal(report.Changed) // numbers alone
		return string(said), err
	})
}

// scheduledPatience is how often a call is made again while the database is away.
const scheduledPatience = 10

// toTheEnd makes one call after the other, each from where the one before has ended.
// It waits for a database that has just gone away.
func toTheEnd(ctx context.Context, many messages.Many, call func(messages.Many) (messages.Rest, error)) error {
	for failed := 0; ; {
		rest, err := call(many)
		away, isAway := errors.AsType[*messages.UnavailableError](err)
		switch {
		case err == nil && !rest.More:
			return nil
		case err == nil:
			many.After, failed = rest.Next, 0
			continue
		case !isAway || failed == scheduledPatience:
			return err
		}
		if failed++; rest.Next != (schedule.Position{}) {
			many.After = rest.Next
		}
		select {
		case <-time.After(away.RetryAfter):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (f *scheduledFlags) preview(w io.Writer, t *messages.Tally) {
	fmt.Fprintf(w, "%s %s\n", f.name, cli.Plural(t.Messages, "message"))
	counts(w, "by topic", othersNamed(t.ByTopic))
	counts(w, "by client", othersNamed(t.ByClient))
	if t.First != nil {
		fmt.Fprintf(w, "due %s to %s\n", t.First.Format(time.RFC3339), t.Last.Format(time.RFC3339))
	}
}

// othersNamed is what a Tally counts by name, with a name for the rest.
func othersNamed(by map[string]int) map[string]int {
	out := maps.Clone(by)
	if n, ok := out[""]; ok {
		delete(out, "")
		out["(others)"] = n
	}
	return out
}
