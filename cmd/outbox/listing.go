package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// listing are the flags of lists, the newest first: of when, and how many.
type listing struct {
	start, end string
	limit      int
}

// addFlags adds them for a list of things, such as letters, that began somehow, such
// as died, at their time.
func (l *listing) addFlags(cmd *cobra.Command, things, began string, limit int) {
	fl := cmd.Flags()
	fl.StringVar(&l.start, "start-date", "", things+" that "+began+" then or later: a date, a time (RFC 3339), or how long ago, such as 24h; UTC")
	fl.StringVar(&l.end, "end-date", "", things+" that "+began+" before; a date includes its day")
	fl.IntVar(&l.limit, "limit", limit, "this many "+things+" at most, newest first; 0 means all")
}

// span is the time that the flags mean: since is in it, until is not, and zero is no
// bound. Errors are of usage.
func (l *listing) span(now time.Time) (since, until time.Time, err error) {
	if l.start != "" {
		if since, _, err = dateOrTime(l.start, now); err != nil {
			return since, until, usageError{fmt.Errorf("--start-date %w", err)}
		}
	}
	if l.end != "" {
		var day bool
		if until, day, err = dateOrTime(l.end, now); err != nil {
			return since, until, usageError{fmt.Errorf("--end-date %w", err)}
		}
		if day {
			until = until.AddDate(0, 0, 1)
		}
	}
	if !since.IsZero() && !until.IsZero() && !since.Before(until) {
		return since, until, usageError{fmt.Errorf("--start-date %s is not before --end-date %s", l.start, l.end)}
	}
	if l.limit < 0 {
		return since, until, usageError{fmt.Errorf("--limit %d must not be negative", l.limit)}
	}
	return since, until, nil
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
