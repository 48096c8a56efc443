package dlq

import (
	"time"
	_ "time/tzdata" // time zones where the machine has none

	"github.com/robfig/cron/v3"
)

// schedule is windows of time that begin by cron expressions, in a time zone. A
// beginning that a change to summer time leaps over is left out that day.
type schedule struct {
	begins []cron.Schedule
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
		begin, err := parser.Parse(w)
		if err != nil {
			bad("windows: %q is not a cron expression: write minute, hour, day, month and weekday, such as 0 2 * * *: %v", w, err)
			continue
		}
		if spec, ok := begin.(*cron.SpecSchedule); ok {
			spec.Location = s.zone // otherwise cron uses the zone of its argument
		}
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
		if at := b.Next(now.In(s.zone)); !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first.UTC()
}

// open reports whether now is in a window.
func (s *schedule) open(now time.Time) bool {
	began := s.next(now.Add(-s.length))
	return !began.IsZero() && !began.After(now)
}
