package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// Listing contains the flags of lists with the newest entry first: period, limit and cursor.
type Listing struct {
	Since, Until string
	Limit        int
	Cursor       string
}

// CursorFlag adds --cursor to a command that prints a Table by pages.
func CursorFlag(cmd *cobra.Command, cursor *string) {
	cmd.Flags().StringVar(cursor, "cursor", "", "next of the page before, with the same filters: print the page behind it")
}

// AddFlags adds the flags for a list of things, such as dead letters. event is the verb of
// their time, such as "failed first", and limit the default of --limit.
func (l *Listing) AddFlags(cmd *cobra.Command, things, event string, limit int) {
	fl := cmd.Flags()
	fl.StringVar(&l.Since, "since", "", things+" that "+event+" since a date, a time (RFC 3339) or an age such as 24h; UTC")
	fl.StringVar(&l.Until, "until", "", things+" that "+event+" before; a date includes its day")
	fl.IntVar(&l.Limit, "limit", limit, "maximum number of "+things+", newest first; 0 is all")
}

// Span returns the period of the flags. It includes since and excludes until; zero is no
// bound. Errors are of usage.
func (l *Listing) Span(now time.Time) (since, until time.Time, err error) {
	if l.Since != "" {
		if since, _, err = DateOrTime(l.Since, now); err != nil {
			return since, until, Usage(fmt.Errorf("--since %w", err))
		}
	}
	if l.Until != "" {
		var day bool
		if until, day, err = DateOrTime(l.Until, now); err != nil {
			return since, until, Usage(fmt.Errorf("--until %w", err))
		}
		if day {
			until = until.AddDate(0, 0, 1)
		}
	}
	if !since.IsZero() && !until.IsZero() && !since.Before(until) {
		return since, until, Usage(fmt.Errorf("--since %s is not before --until %s", l.Since, l.Until))
	}
	if l.Limit < 0 {
		return since, until, Usage(fmt.Errorf("--limit %d must not be negative", l.Limit))
	}
	return since, until, nil
}

// DateOrTime parses a date, a time or an age; day reports that it was a date.
func DateOrTime(s string, now time.Time) (t time.Time, day bool, err error) {
	if t, err := time.Parse(time.DateOnly, s); err == nil {
		return t, true, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return now.Add(-d), false, nil
	}
	t, err = time.Parse(time.RFC3339, s)
	if err != nil {
		return t, false, fmt.Errorf("%q: write a date such as 2026-01-02, a time such as 2026-01-02T15:04:05Z, or an age such as 24h", s)
	}
	return t, false, nil
}
