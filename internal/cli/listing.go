package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// Listing are the flags of lists, the newest first: of when, and how many.
type Listing struct {
	Start, End string
	Limit      int
}

// AddFlags adds them for a list of things, such as letters, that began somehow, such
// as died, at their time.
func (l *Listing) AddFlags(cmd *cobra.Command, things, began string, limit int) {
	fl := cmd.Flags()
	fl.StringVar(&l.Start, "start-date", "", things+" that "+began+" then or later: a date, a time (RFC 3339), or how long ago, such as 24h; UTC")
	fl.StringVar(&l.End, "end-date", "", things+" that "+began+" before; a date includes its day")
	fl.IntVar(&l.Limit, "limit", limit, "this many "+things+" at most, newest first; 0 means all")
}

// Span is the time that the flags mean: since is in it, until is not, and zero is no
// bound. Errors are of usage.
func (l *Listing) Span(now time.Time) (since, until time.Time, err error) {
	if l.Start != "" {
		if since, _, err = DateOrTime(l.Start, now); err != nil {
			return since, until, Usage(fmt.Errorf("--start-date %w", err))
		}
	}
	if l.End != "" {
		var day bool
		if until, day, err = DateOrTime(l.End, now); err != nil {
			return since, until, Usage(fmt.Errorf("--end-date %w", err))
		}
		if day {
			until = until.AddDate(0, 0, 1)
		}
	}
	if !since.IsZero() && !until.IsZero() && !since.Before(until) {
		return since, until, Usage(fmt.Errorf("--start-date %s is not before --end-date %s", l.Start, l.End))
	}
	if l.Limit < 0 {
		return since, until, Usage(fmt.Errorf("--limit %d must not be negative", l.Limit))
	}
	return since, until, nil
}

// DateOrTime reads a date, a time, or how long ago it is; day says that it was
// a date.
func DateOrTime(s string, now time.Time) (t time.Time, day bool, err error) {
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
