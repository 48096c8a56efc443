package dlq

import (
	"errors"
	"strings"
	"time"
	_ "time/tzdata" // time zones where the machine has none

	"github.com/robfig/cron/v3"
)

// schedule is windows of time that begin by cron expressions, in a time zone. A
// beginning that a change of the zone's offset leaps over is left out that day; one that it
// repeats is the first of the two.
type schedule struct {
	begins []*cron.SpecSchedule // of wall times, as times in UTC
	zone   *time.Location
	length time.Duration
}

// maxWindow limits the duration of a window.
const maxWindow = 7 * 24 * time.Hour

func newSchedule(r *StrategyRule, bad func(format string, args ...any)) *schedule {
	s := &schedule{length: r.WindowLength}
	if s.length == 0 {
		s.length = DefaultWindowLength
	}
	if s.length < time.Minute || s.length > maxWindow {
		bad("window_length %s is not between 1m and %s", s.length, maxWindow)
	}
	zone := r.TimeZone
	if zone == "" {
		zone = "UTC"
	}
	var err error
	if s.zone, err = time.LoadLocation(zone); err != nil || zone == "Local" {
		bad("time_zone: unknown zone %q: write a name such as Europe/Berlin", zone)
		s.zone = time.UTC
	}
	windows := r.Windows
	if len(windows) == 0 {
		windows = DefaultWindows
	}
	parser := cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)
	for _, w := range windows {
		if strings.Contains(w, "TZ=") { // which the parser accepts
			bad("windows: %q has a time zone: write it in time_zone, which applies to all windows", w)
			continue
		}
		parsed, err := parser.Parse(w)
		begin, ok := parsed.(*cron.SpecSchedule)
		if err == nil && !ok {
			err = errors.New("it is an interval")
		}
		if err != nil {
			bad("windows: %q is not a cron expression: write minute, hour, day, month and weekday, such as 0 2 * * *: %v", w, err)
			continue
		}
		// The library loses days on which an offset changes.
		begin.Location = time.UTC
		if begin.Next(time.Unix(0, 0)).IsZero() {
			bad("windows: %q never occurs: correct its day or month", w)
		}
		s.begins = append(s.begins, begin)
	}
	return s
}

// next returns the beginning of the next window after now.
func (s *schedule) next(now time.Time) (first time.Time) {
	for _, b := range s.begins {
		if at := s.begin(b, now); !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first.UTC()
}

// maxAhead bounds the search for a beginning: a zone may leap over the same one each year.
const maxAhead = 10 * 366 * 24 * time.Hour

// begin returns the first time after now whose wall time an expression selects; zero for none.
func (s *schedule) begin(b *cron.SpecSchedule, now time.Time) time.Time {
	_, offset := now.In(s.zone).Zone()
	for wall := now.UTC().Add(time.Duration(offset) * time.Second); ; {
		if wall = b.Next(wall); wall.IsZero() || wall.Sub(now) > maxAhead {
			return time.Time{}
		}
		if at, ok := s.first(wall); ok && at.After(now) {
			return at
		}
	}
}

// first returns the first time with a wall time, which is given as a time in UTC; false if the
// zone leaps over it.
func (s *schedule) first(wall time.Time) (first time.Time, found bool) {
	for _, near := range []time.Duration{-24 * time.Hour, 24 * time.Hour} { // before and after a change
		_, offset := wall.Add(near).In(s.zone).Zone()
		at := wall.Add(-time.Duration(offset) * time.Second)
		if _, is := at.In(s.zone).Zone(); is == offset && (!found || at.Before(first)) {
			first, found = at, true
		}
	}
	return first, found
}

// open reports whether now is in a window.
func (s *schedule) open(now time.Time) bool {
	began := s.next(now.Add(-s.length))
	return !began.IsZero() && !began.After(now)
}
