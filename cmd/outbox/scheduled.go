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
	"github.com/scylla-outbox/scylla-outbox/schema"
)

func newScheduledCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "scheduled",
		Short: "List, release and cancel scheduled messages",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(
		newScheduledListCommand(),
		newScheduledChangeCommand(scheduledChange{
			name: "release", action: "release-messages", done: "released", one: (*messages.Service).ReleaseMany,
			short: "Release scheduled messages now",
			what:  "The messages become due immediately and are published at up to relay.schedule_rate.\nUntil then they can be cancelled.",
		}),
		newScheduledChangeCommand(scheduledChange{
			name: "cancel", action: "cancel-messages", done: "cancelled", due: true, one: (*messages.Service).CancelMany,
			short: "Cancel scheduled messages",
			what:  "The messages are never published, and their payloads are deleted. This cannot be undone.",
		}),
	)
	return cmd
}

// scheduledChange is a command that changes many messages.
type scheduledChange struct {
	name, action, done, short, what string
	due                             bool // includes messages that are due
	one                             func(*messages.Service, context.Context, messages.Many, int, float64) (messages.Tally, messages.Changed, messages.Rest, error)
}

// scheduledFlags contains the flags of a change.
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

Select messages by flags. The command counts them first. On a terminal it asks for
confirmation; elsewhere it requires --yes. Messages that are accepted after the start
of the command are excluded. A second run handles the remaining messages. The audit
trail records the change.

Exit status: 0 all were ` + change.done + ` or published before; 1 failure; 2 wrong command
line or configuration.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			many, err := f.many(time.Now())
			if err == nil {
				err = cli.CheckOutput(f.output)
			}
			if err == nil {
				err = f.required(f.dryRun)
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
	fl.BoolVar(&f.all, "all", false, "all scheduled messages")
	fl.Float64Var(&f.rate, "rate", 0, "maximum number of messages per second; 0 is no limit")
	f.dlqConfirm.addFlags(cmd)
	f.dlqActor.addFlags(cmd, "audit trail")
	cli.OutputFlag(cmd, &f.output)
	app.AddFlags(cmd, app.SectionScylla, app.SectionLog)
	return cmd
}

// many returns the selection of the flags.
func (f *scheduledFlags) many(now time.Time) (messages.Many, error) {
	m, err := f.filter(now)
	if m.Due = f.due; m.CreatedUntil.IsZero() {
		m.CreatedUntil = now
	}
	switch {
	case err != nil:
		return m, err
	case f.empty() && !f.all:
		return m, cli.Usage(errors.New("no messages selected: use a filter such as --topic or --client, or --all"))
	case !f.empty() && f.all:
		return m, cli.Usage(errors.New("--all and filters cannot be combined: use one of them"))
	case f.rate != 0 && !(f.rate >= messages.MinRate):
		return m, cli.Usage(fmt.Errorf("--rate %g: must be %g or more; 0 is no limit", f.rate, messages.MinRate))
	}
	return m, nil
}

// scheduledReport is the result of the command as JSON.
type scheduledReport struct {
	DryRun bool `json:"dry_run,omitempty"`
	messages.Tally
	messages.Changed
}

// scheduled opens a session, which the caller closes, and returns the service of messages
// on it.
func scheduled(c *app.Config, log *slog.Logger) (*gocql.Session, *messages.Service, error) {
	consistency, _ := c.Scylla.Consistencies()
	c.Scylla.Need(schema.Schedule)
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
			return fmt.Errorf("%w; %d were %s; run the same command again for the rest", err, report.Changed.Changed, f.done)
		}
	}
	if f.output != "table" {
		return cli.PrintAs(cmd.OutOrStdout(), f.output, &report)
	}
	if !f.dryRun {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d %s, %d were published before\n", f.name, report.Changed.Changed, f.done, report.Gone)
	}
	return err
}

// change makes the change and records it in the audit trail.
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
	return admin.Audited(ctx, session, keyspace, log, change, func(ctx context.Context) (string, string, error) {
		err := toTheEnd(ctx, many, func(many messages.Many) (messages.Rest, error) {
			_, done, rest, err := f.one(service, ctx, many, messages.MaxMany, f.rate)
			report.Changed.Changed += done.Changed
			report.Gone += done.Gone
			return rest, err
		})
		detail, _ := json.Marshal(report.Changed) // only numbers, so no error
		return "", string(detail), err
	})
}

// scheduledPatience is the maximum number of retries while the database is unreachable.
const scheduledPatience = 10

// toTheEnd repeats a call, each time from the end of the previous one, until nothing is left.
// It retries while the database is unreachable.
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

// othersNamed returns the counts of a Tally by name, with a name for the rest.
func othersNamed(by map[string]int) map[string]int {
	out := maps.Clone(by)
	if n, ok := out[""]; ok {
		delete(out, "")
		out["(others)"] = n
	}
	return out
}
