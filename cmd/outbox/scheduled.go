package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"time"

	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/admin/adminclient"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

func newMessagesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "messages",
		Short: "Serve the HTTP API of messages and the event streams",
		Long: `Serve the HTTP API of messages and the event streams, until SIGTERM. Any number of
processes may run. Tokens, TLS and proxies are the settings of the section http.

The commands below print, list, deliver and cancel messages; all but get apply to
scheduled messages. They use the admin API at --api-admin-url, or without it the database. An
API needs a token (OUTBOX_API_TOKEN): get and list that of a viewer, the others that of an
operator.`,
		Args: cobra.NoArgs,
		RunE: app.WithConfig(runMessages),
	}
	app.AddFlags(cmd, app.MessagesSections...)
	cmd.AddCommand(
		newScheduledListCommand(), newMessagesGetCommand(),
		newScheduledChangeCommand(scheduledChange{
			name: adminclient.DeliverScheduledNow, done: "made due",
			short: "Deliver scheduled messages now",
			what:  "The messages become due immediately and are published at up to relay.scheduled_per_second.\nUntil then they can be cancelled.",
		}),
		newScheduledChangeCommand(scheduledChange{
			name: adminclient.CancelScheduled, done: "cancelled",
			short: "Cancel scheduled messages",
			what:  "The messages are never published, and their payloads are deleted. This cannot be undone.",
		}),
	)
	return cmd
}

// scheduledChange is a command that changes many messages.
type scheduledChange struct{ name, done, short, what string }

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
trail records each request of the change: up to 1,000 messages, or with --rate those of
ten seconds.

Exit status: 0 all were ` + change.done + ` or published before; 1 failure; 2 wrong command
line or configuration.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			many, err := f.many(time.Now())
			if err == nil {
				err = f.requireReason(f.dryRun)
			}
			if err != nil {
				return err
			}
			return withScheduled(cmd, f.actor, func(api *operatorAPI) error { return f.change(cmd, api, many) })
		},
	}
	f.scheduledFilter.addFlags(cmd)
	fl := cmd.Flags()
	fl.BoolVar(&f.all, "all", false, "all scheduled messages")
	fl.Float64Var(&f.rate, "rate", 0, "maximum number of messages per second; 0 is no limit")
	f.dlqConfirm.addFlags(cmd)
	f.dlqActor.addFlags(cmd, "audit trail")
	cli.OutputFlag(cmd, &f.output)
	app.AddFlags(cmd, app.SectionScylla, app.SectionAPI)
	return cmd
}

// withScheduled runs f with the admin API, for commands on scheduled messages.
func withScheduled(cmd *cobra.Command, actor string, f func(*operatorAPI) error) error {
	return withAPIOf(cmd, actor, []schema.Component{schema.Schedule}, f)
}

// many returns the request of the flags.
func (f *scheduledFlags) many(now time.Time) (b messages.ManyBody, err error) {
	b.Rate = f.rate
	if b.Filter, err = f.filter(now); b.Filter.CreatedUntil.IsZero() {
		b.Filter.CreatedUntil = now.UTC()
	}
	switch {
	case err != nil:
		return b, err
	case f.empty() && !f.all:
		return b, cli.Usage(errors.New("no messages selected: use a filter such as --topic or --client, or --all"))
	case !f.empty() && f.all:
		return b, cli.Usage(errors.New("--all and filters cannot be combined: use one of them"))
	case f.rate != 0 && !(f.rate >= messages.MinRate):
		return b, cli.Usage(fmt.Errorf("--rate %g: must be %g or more; 0 is no limit", f.rate, messages.MinRate))
	}
	return b, nil
}

// scheduledReport is the result of the command as JSON.
type scheduledReport struct {
	DryRun bool `json:"dry_run,omitempty"`
	messages.Tally
	messages.Changed
}

// change counts the messages of a request and, after the confirmation, changes them.
func (f *scheduledFlags) change(cmd *cobra.Command, api *operatorAPI, many messages.ManyBody) error {
	report := scheduledReport{DryRun: f.dryRun, Tally: messages.NewTally()}
	count := many
	count.DryRun, count.Rate = true, 0
	err := f.each(cmd.Context(), api, count, func(r *messages.ManyResultBody) { report.Merge(&r.Preview) })
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
		err := f.each(cmd.Context(), api, many, func(r *messages.ManyResultBody) {
			if r.Result != nil {
				report.Changed.Changed += r.Result.Changed
				report.Gone += r.Result.Gone
			}
		})
		if err != nil {
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

// scheduledPatience is the maximum number of repetitions of a request while the database is
// unreachable.
const scheduledPatience = 10

// each sends a request until no messages follow, and calls add with each result, that of a
// failed request included. It repeats a request while the database is unreachable.
func (f *scheduledFlags) each(ctx context.Context, api *operatorAPI, many messages.ManyBody, add func(*messages.ManyResultBody)) error {
	for failed := 0; ; {
		out, err := api.ChangeScheduled(ctx, f.name, many, f.reason)
		if err == nil {
			if add(&out); out.Next == "" {
				return nil
			}
			many.Cursor, failed = out.Next, 0
			continue
		}
		p, ok := errors.AsType[*adminclient.Error](err)
		if ok {
			add(&messages.ManyResultBody{Result: &p.Result})
		}
		if !ok || !adminclient.Temporary(err) || failed == scheduledPatience {
			return err
		}
		failed++
		if err := retry.Wait(ctx, max(p.RetryAfter, time.Second)); err != nil {
			return err
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
