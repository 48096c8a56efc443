package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

func newDLQCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "List, replay, discard, unblock and edit dead letters",
		Long: `List, replay, discard, unblock and edit dead letters.

A dead letter is an event that the relay could not publish. It blocks the later
events of its aggregate, which keeps their order. These commands change dead
letters in the database; the relay acts on the change within a second. They use the
admin API at --api-admin-url, or without it the database. An API needs a token (OUTBOX_API_TOKEN)
and runs the jobs itself; with the database the command runs them.

Each change prints a preview first. On a terminal it asks for confirmation;
elsewhere it requires --yes. --dry-run only prints the preview. --reason is required
and recorded in the audit trail, with the owner of the token or, for the database, the
user of this machine or --actor.

Exit status: 0 success; 1 failure, or some dead letters were refused, not found, or
failed again; 2 wrong command line or configuration; 3 the change was made, and the
relay had not published all dead letters within --wait.`,
	}
	cmd.AddCommand(newDLQListCommand(), newDLQGetCommand(), newDLQStatsCommand())
	for _, c := range dlqChanges {
		cmd.AddCommand(newDLQChangeCommand(c))
	}
	cmd.AddCommand(newDLQSetCommand(), newDLQRedirectCommand(), newDLQEditCommand(), newDLQJobsCommand())
	cmd.AddCommand(newDLQPurgeCommand(), newDLQArchiveCommand())
	return cmd
}

// dlqFilter contains the flags that select dead letters.
type dlqFilter struct {
	listing
	errorClass, errorCode, outcome, eventType, aggregate, table, text string
	statuses, tags                                                    []string
	minPriority                                                       *int
}

func (f *dlqFilter) addFlags(cmd *cobra.Command, limit int) {
	fl := cmd.Flags()
	fl.StringVar(&f.errorClass, "error-class", "", "dead letters of this error class, such as record_too_large")
	fl.StringVar(&f.errorCode, "error-code", "", "dead letters with this code of the broker or the database, such as NOT_LEADER_FOR_PARTITION")
	fl.StringVar(&f.outcome, "outcome", "", "dead letters that were resolved in this way: replayed, found or unblocked, whose events are in their topics; redirected, discarded, by_hand")
	fl.StringVar(&f.eventType, "event-type", "", "dead letters of this event type, such as OrderCreated")
	fl.StringVar(&f.aggregate, "aggregate-id", "", "dead letters of this aggregate")
	fl.StringVar(&f.text, "text", "", "dead letters whose error, event type or aggregate id contains this text, case-insensitive")
	fl.StringVar(&f.table, "table", "", "dead letters of this outbox table, keyspace.table, or of subscription.NAME")
	fl.StringSliceVar(&f.tags, "tag", nil, "dead letters with all of these tags")
	fl.Func("min-priority", "dead letters with this `priority` or a higher one", func(text string) error {
		n, err := strconv.Atoi(text)
		f.minPriority = &n
		return err
	})
	fl.StringSliceVar(&f.statuses, "status", nil, "dead letters with these statuses: open, which is pending, blocked, processing, failed and suspended; resolved, archived")
	f.AddFlags(cmd, "dead letters", "failed first", limit)
	f.complete(cmd)
}

// filter returns the filter of the flags.
func (f *dlqFilter) filter(now time.Time) (out dlq.Filter, err error) {
	out = dlq.Filter{ErrorClass: f.errorClass, ErrorCode: f.errorCode, Outcome: dlq.OutcomeKind(f.outcome), EventType: f.eventType, Aggregate: f.aggregate, Table: f.table, Tags: f.tags, MinPriority: f.minPriority, Text: f.text}
	outcomes := names(dlq.OutcomeKinds)
	for _, x := range []struct {
		flag, value string
		allowed     []string
	}{{"error-class", f.errorClass, dlq.ErrorClasses}, {"outcome", f.outcome, outcomes}} {
		if x.value == "" {
			continue
		}
		if err := cli.CheckChoice(x.flag, x.value, x.allowed...); err != nil {
			return out, err
		}
	}
	if err := out.Validate(); err != nil {
		return out, cli.Usage(err)
	}
	for _, s := range f.statuses {
		if s == statusOpen {
			out.Status = append(out.Status, dlq.OpenStatuses...)
			continue
		}
		if slices.Contains(outcomes, s) {
			return out, cli.Usage(fmt.Errorf("--status %q is an outcome: use --outcome %s", s, s))
		}
		if err := cli.CheckChoice("status", s, statusNames()...); err != nil {
			return out, err
		}
		out.Status = append(out.Status, dlq.Status(s))
	}
	out.Since, out.Until, err = f.Span(now)
	return out, err
}

// empty reports that no flag selects dead letters.
func (f *dlqFilter) empty() bool {
	return f.errorClass == "" && f.errorCode == "" && f.outcome == "" && f.eventType == "" && f.aggregate == "" && f.table == "" && f.text == "" && f.Since == "" && f.Until == "" &&
		len(f.statuses)+len(f.tags) == 0 && f.minPriority == nil
}

// statusOpen and statusAll are values of --status beside the names of statuses. Only list
// has statusAll.
const (
	statusOpen = "open"
	statusAll  = "all"
)

// statusNames returns the values of --status.
func statusNames() []string { return append([]string{statusOpen}, names(dlq.Statuses)...) }

// names returns the values of a type of texts.
func names[T ~string](values []T) []string {
	out := make([]string, len(values))
	for i, n := range values {
		out[i] = string(n)
	}
	return out
}

// eventIDs reads the ids on the command line. The error lists every invalid one.
func eventIDs(args []string) ([]gocql.UUID, error) {
	var out []gocql.UUID
	var errs []error
	for _, a := range args {
		id, err := gocql.ParseUUID(a)
		if err != nil {
			errs = append(errs, fmt.Errorf("%q is not a valid event id: copy it from outbox dlq list", a))
		}
		out = append(out, id)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, cli.Usage(err)
	}
	return out, nil
}
