package main

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/dlq"
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
	errorType, eventType, aggregate, start, end string
	statuses                                    []string
	limit                                       int
}

func (f *dlqFilter) addFlags(cmd *cobra.Command, limit int) {
	fl := cmd.Flags()
	fl.StringVar(&f.errorType, "error-type", "", "letters of this error class, such as record_too_large")
	fl.StringVar(&f.eventType, "event-type", "", "letters of this event type, such as OrderCreated")
	fl.StringVar(&f.aggregate, "aggregate", "", "letters of this aggregate")
	fl.StringSliceVar(&f.statuses, "status", nil, "letters that stand there: pending, parked, processing, failed, manual, resolved, archived; several by commas")
	fl.StringVar(&f.start, "start-date", "", "letters that died then or later: a date, a time (RFC 3339), or how long ago, such as 24h; UTC")
	fl.StringVar(&f.end, "end-date", "", "letters that died before; a date includes its day")
	fl.IntVar(&f.limit, "limit", limit, "this many letters at most, newest first; 0 means all")
	f.complete(cmd)
}

// filter is what the flags say.
func (f *dlqFilter) filter(now time.Time) (out dlq.Filter, err error) {
	out = dlq.Filter{ErrorClass: f.errorType, EventType: f.eventType, Aggregate: f.aggregate}
	for _, s := range f.statuses {
		if err := oneOf("status", s, statusNames()...); err != nil {
			return out, err
		}
		out.Status = append(out.Status, dlq.Status(s))
	}
	if f.start != "" {
		if out.Since, _, err = dateOrTime(f.start, now); err != nil {
			return out, usageError{fmt.Errorf("--start-date %w", err)}
		}
	}
	if f.end != "" {
		var day bool
		if out.Until, day, err = dateOrTime(f.end, now); err != nil {
			return out, usageError{fmt.Errorf("--end-date %w", err)}
		}
		if day {
			out.Until = out.Until.AddDate(0, 0, 1)
		}
	}
	if !out.Since.IsZero() && !out.Until.IsZero() && !out.Since.Before(out.Until) {
		return out, usageError{fmt.Errorf("--start-date %s is not before --end-date %s", f.start, f.end)}
	}
	if f.limit < 0 {
		return out, usageError{fmt.Errorf("--limit %d must not be negative", f.limit)}
	}
	return out, nil
}

// empty tells whether no flag says which letters.
func (f *dlqFilter) empty() bool {
	return f.errorType == "" && f.eventType == "" && f.aggregate == "" && f.start == "" && f.end == "" && len(f.statuses) == 0
}

func statusNames() (out []string) {
	for _, s := range dlq.Statuses {
		out = append(out, string(s))
	}
	return out
}

// dateOrTime reads a date, a time, or how long ago it is; day says that it was
// a date.
func dateOrTime(s string, now time.Time) (t time.Time, day bool, err error) {
	if t, err := time.Parse(time.DateOnly, s); err == nil {
		return t, true, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), false, nil
	}
	t, err = time.Parse(time.RFC3339, s)
	if err != nil {
		return t, false, fmt.Errorf("%q: write a date such as 2026-01-02, a time such as 2026-01-02T15:04:05Z, or how long ago, such as 24h", s)
	}
	return t, false, nil
}

// dlqStore opens the store; close ends its session.
func (c *config) dlqStore() (s *dlq.Store, closeSession func(), err error) {
	session, err := c.Scylla.session(c.Scylla.Keyspace)
	if err != nil {
		return nil, nil, err
	}
	opts, err := c.dlqOptions()
	if err == nil {
		s, err = dlq.Open(session, c.Scylla.Keyspace, opts...)
	}
	if err != nil {
		session.Close()
		return nil, nil, err
	}
	return s, session.Close, nil
}

// dlqOptions are those that follow from the database's settings.
func (c *config) dlqOptions() ([]dlq.Option, error) {
	cons, err := gocql.ParseConsistencyWrapper(c.Scylla.Consistency)
	if err != nil {
		return nil, usageError{fmt.Errorf("scylla.consistency %q is no consistency level: use LOCAL_QUORUM", c.Scylla.Consistency)}
	}
	serial := gocql.Serial
	if c.Scylla.LocalDC != "" {
		serial = gocql.LocalSerial
	}
	timeout := cmp.Or(c.Scylla.Timeout, dlq.DefaultAttemptTimeout)
	return []dlq.Option{
		dlq.WithConsistency(cons), dlq.WithSerialConsistency(serial), dlq.WithTimeouts(timeout, max(dlq.DefaultBudget, 2*timeout)),
	}, nil
}

// withDLQ runs f with the store of the command's configuration.
func withDLQ(cmd *cobra.Command, f func(*dlq.Store) error) error {
	return withDLQConfig(cmd, func(_ *config, s *dlq.Store) error { return f(s) })
}

// withDLQConfig is withDLQ for who needs more of the configuration.
func withDLQConfig(cmd *cobra.Command, f func(*config, *dlq.Store) error) error {
	c, err := loadConfig(cmd)
	if err != nil {
		return usageError{err}
	}
	s, closeSession, err := c.dlqStore()
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
		return nil, usageError{err}
	}
	return out, nil
}
