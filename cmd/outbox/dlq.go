package main

import (
	"errors"
	"fmt"
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
		Short: "Look at dead letters, and replay, discard or release them",
		Long: `Look at dead letters, and replay, discard or release them.

A dead letter is an event that the relay could not publish. Later events of its
aggregate are parked behind it, so that the order is kept. These commands change
letters in the database; the relay sees it within a second and does the rest.

Each change shows first what it would do. On a terminal it asks; elsewhere it
needs --yes. --dry-run only shows it.

Exit status: 0 all was done; 1 it failed, or some letters were refused, were not
found, or died again; 2 the command line or the configuration is wrong; 3 all was
asked for, and the relay had not published all of it when --wait was up.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newDLQListCommand(), newDLQShowCommand(), newDLQStatsCommand())
	for _, c := range dlqChanges {
		cmd.AddCommand(newDLQChangeCommand(c))
	}
	cmd.AddCommand(newDLQEditCommand(), newDLQJobsCommand())
	cmd.AddCommand(newDLQPurgeCommand(), newDLQArchiveCommand(), newDLQWatchCommand())
	return cmd
}

// dlqFilter are the flags that say which letters.
type dlqFilter struct {
	cli.Listing
	errorType, eventType, aggregate string
	statuses                        []string
}

func (f *dlqFilter) addFlags(cmd *cobra.Command, limit int) {
	fl := cmd.Flags()
	fl.StringVar(&f.errorType, "error-type", "", "letters of this error class, such as record_too_large")
	fl.StringVar(&f.eventType, "event-type", "", "letters of this event type, such as OrderCreated")
	fl.StringVar(&f.aggregate, "aggregate", "", "letters of this aggregate")
	fl.StringSliceVar(&f.statuses, "status", nil, "letters that stand there: pending, parked, processing, failed, manual, resolved, archived; several by commas")
	f.Listing.AddFlags(cmd, "letters", "died", limit)
	f.complete(cmd)
}

// filter is what the flags say.
func (f *dlqFilter) filter(now time.Time) (out dlq.Filter, err error) {
	out = dlq.Filter{ErrorClass: f.errorType, EventType: f.eventType, Aggregate: f.aggregate}
	for _, s := range f.statuses {
		if err := cli.OneOf("status", s, statusNames()...); err != nil {
			return out, err
		}
		out.Status = append(out.Status, dlq.Status(s))
	}
	out.Since, out.Until, err = f.Span(now)
	return out, err
}

// empty tells whether no flag says which letters.
func (f *dlqFilter) empty() bool {
	return f.errorType == "" && f.eventType == "" && f.aggregate == "" && f.Start == "" && f.End == "" && len(f.statuses) == 0
}

func statusNames() (out []string) {
	for _, s := range dlq.Statuses {
		out = append(out, string(s))
	}
	return out
}

// withDLQ runs f with the store of the command's configuration.
func withDLQ(cmd *cobra.Command, f func(*dlq.Store) error) error {
	return withDLQConfig(cmd, func(_ *app.Config, s *dlq.Store) error { return f(s) })
}

// withDLQConfig is withDLQ for who needs more of the configuration.
func withDLQConfig(cmd *cobra.Command, f func(*app.Config, *dlq.Store) error) error {
	c, err := app.LoadConfig(cmd)
	if err != nil {
		return err
	}
	s, closeSession, err := c.DLQStore()
	if err != nil {
		return err
	}
	defer closeSession()
	return f(c, s)
}

// eventIDs reads the ids on the command line.
func eventIDs(args []string) ([]gocql.UUID, error) { return idsOf(args, "event id", "outbox dlq list") }

// idsOf reads ids; what they are, and which command shows them, is for errors,
// which name each that is none.
func idsOf(args []string, what, shownBy string) ([]gocql.UUID, error) {
	var out []gocql.UUID
	var errs []error
	for _, a := range args {
		id, err := gocql.ParseUUID(a)
		if err != nil {
			errs = append(errs, fmt.Errorf("%q is no %s: write it as %s shows it", a, what, shownBy))
		}
		out = append(out, id)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, cli.Usage(err)
	}
	return out, nil
}
