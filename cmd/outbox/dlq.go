package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

func newDLQCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dlq",
		Short: "List, replay, discard, release and edit dead letters",
		Long: `List, replay, discard, release and edit dead letters.

A dead letter is an event that the relay could not publish. It blocks the later
events of its aggregate, which keeps their order. These commands change dead
letters in the database; the relay acts on the change within a second.

Each change prints a preview first. On a terminal it asks for confirmation;
elsewhere it requires --yes. --dry-run only prints the preview. --reason is required
and, with the user of this machine or --actor, recorded in the audit trail.

Exit status: 0 success; 1 failure, or some dead letters were refused, not found, or
failed again; 2 wrong command line or configuration; 3 the change was made, and the
relay had not published all dead letters within --wait.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDLQListCommand(), newDLQShowCommand(), newDLQStatsCommand())
	for _, c := range dlqChanges {
		cmd.AddCommand(newDLQChangeCommand(c))
	}
	cmd.AddCommand(newDLQSetCommand(), newDLQEditCommand(), newDLQJobsCommand())
	cmd.AddCommand(newDLQPurgeCommand(), newDLQArchiveCommand(), newDLQWatchCommand())
	return cmd
}

// dlqFilter contains the flags that select dead letters.
type dlqFilter struct {
	cli.Listing
	errorType, eventType, aggregate, table string
	statuses, tags                         []string
	minPriority                            *int
}

func (f *dlqFilter) addFlags(cmd *cobra.Command, limit int) {
	fl := cmd.Flags()
	fl.StringVar(&f.errorType, "error-type", "", "dead letters of this error class, such as record_too_large")
	fl.StringVar(&f.eventType, "event-type", "", "dead letters of this event type, such as OrderCreated")
	fl.StringVar(&f.aggregate, "aggregate", "", "dead letters of this aggregate")
	fl.StringVar(&f.table, "table", "", "dead letters of this outbox table, keyspace.table, or of subscription.NAME")
	fl.StringSliceVar(&f.tags, "tag", nil, "dead letters with all of these tags")
	fl.Func("min-priority", "dead letters with this `priority` or a higher one", func(text string) error {
		n, err := strconv.Atoi(text)
		f.minPriority = &n
		return err
	})
	fl.StringSliceVar(&f.statuses, "status", nil, "dead letters with these statuses: open, which is pending, parked, processing, failed and manual; resolved, archived")
	f.Listing.AddFlags(cmd, "dead letters", "failed last", limit)
	f.complete(cmd)
}

// filter returns the filter of the flags.
func (f *dlqFilter) filter(now time.Time) (out dlq.Filter, err error) {
	out = dlq.Filter{ErrorClass: f.errorType, EventType: f.eventType, Aggregate: f.aggregate, Table: f.table, Tags: f.tags, MinPriority: f.minPriority}
	if err := out.Validate(); err != nil {
		return out, cli.Usage(err)
	}
	for _, s := range f.statuses {
		if s == statusOpen {
			out.Status = append(out.Status, dlq.OpenStatuses...)
			continue
		}
		if err := cli.OneOf("status", s, statusNames()...); err != nil {
			return out, err
		}
		out.Status = append(out.Status, dlq.Status(s))
	}
	out.Since, out.Until, err = f.Span(now)
	return out, err
}

// empty reports that no flag selects dead letters.
func (f *dlqFilter) empty() bool {
	return f.errorType == "" && f.eventType == "" && f.aggregate == "" && f.table == "" && f.Since == "" && f.Until == "" &&
		len(f.statuses)+len(f.tags) == 0 && f.minPriority == nil
}

// statusOpen and statusAll are values of --status beside the names of statuses. Only list
// has statusAll.
const (
	statusOpen = "open"
	statusAll  = "all"
)

// statusNames returns the values of --status.
func statusNames() []string {
	out := []string{statusOpen}
	for _, s := range dlq.Statuses {
		out = append(out, string(s))
	}
	return out
}

// withDLQ runs f with the store of the command's configuration.
func withDLQ(cmd *cobra.Command, f func(*dlq.Store) error) error {
	return withDLQConfig(cmd, func(_ *app.Config, s *dlq.Store, _ *auditTrail) error { return f(s) })
}

// withDLQConfig is withDLQ with the configuration and the audit trail.
func withDLQConfig(cmd *cobra.Command, f func(*app.Config, *dlq.Store, *auditTrail) error) error {
	c, err := app.LoadConfig(cmd)
	if err != nil {
		return err
	}
	s, session, closeSession, err := c.DLQStore()
	if err != nil {
		return err
	}
	defer closeSession()
	return f(c, s, newAuditTrail(cmd, c, session))
}

// eventIDs reads the ids on the command line.
func eventIDs(args []string) ([]gocql.UUID, error) { return idsOf(args, "event id", "outbox dlq list") }

// idsOf parses ids. The error lists every invalid one; what and shownBy, the kind of id and
// the command that prints it, are parts of its text.
func idsOf(args []string, what, shownBy string) ([]gocql.UUID, error) {
	var out []gocql.UUID
	var errs []error
	for _, a := range args {
		id, err := gocql.ParseUUID(a)
		if err != nil {
			errs = append(errs, fmt.Errorf("%q is not a valid %s: copy it from %s", a, what, shownBy))
		}
		out = append(out, id)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, cli.Usage(err)
	}
	return out, nil
}
