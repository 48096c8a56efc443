package backfill

import (
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

// The beginning of a gap is the earliest one until a scan covers it.
func TestOpenGap_BeginsWithTheEarliest(t *testing.T) {
	t.Parallel()
	day := func(n int) time.Time { return time.Date(2026, 3, n, 0, 0, 0, 0, time.UTC) }
	var o OpenGap
	if since := o.Since(); !since.IsZero() {
		t.Errorf("Since() = %s without a gap, want zero", since)
	}
	for _, begins := range []int{5, 3, 4} {
		o.begin(day(begins))
	}
	if since := o.Since(); !since.Equal(day(3)) {
		t.Errorf("Since() = %s, want %s", since, day(3))
	}
	o.end()
	if since := o.Since(); !since.IsZero() {
		t.Errorf("Since() = %s after its end, want zero", since)
	}
	o.begin(day(6))
	if since := o.Since(); !since.Equal(day(6)) {
		t.Errorf("Since() = %s, want %s", since, day(6))
	}
}

// step is a state of the table that a gapWatch observes.
type step struct {
	altered, logged, created int // minutes after the first state; 0 is unchanged
	columns                  string
	off                      bool // CDC
	at, position             int  // minutes
	changed                  bool
	// from and until are the bounds of the gap, in minutes; -1 without a gap, and 0 without an end.
	from, until float64
	possible    bool
}

// A gap begins a window before the log was last known to be complete, and ends when the log is
// on and no node writes by the options of before.
func TestGapWatch_Observe(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	minute := func(n float64) time.Time { return start.Add(time.Duration(n * float64(time.Minute))) }
	const window = 2 * time.Minute
	for _, tt := range []struct {
		name  string
		steps []step
	}{
		{"nothing changes", []step{{at: 10, position: 8, from: -1}, {at: 20, position: 18, from: -1}}},
		{"the log is altered", []step{
			{at: 10, position: 5, from: -1},
			{altered: 15, at: 20, position: 18, changed: true, from: 8, until: 15.5},
			{altered: 15, at: 30, position: 28, from: 8, until: 15.5},
			{altered: 35, at: 40, position: 38, changed: true, from: 8, until: 35.5},
			{altered: 35, off: true, at: 50, position: 48, from: 8},
		}},
		{"another change explains it", []step{
			{at: 10, position: 8, from: -1},
			{altered: 15, columns: "a b", at: 20, position: 18, changed: true, from: 8, until: 15.5, possible: true},
			{altered: 15, columns: "a b", at: 25, position: 23, from: 8, until: 15.5, possible: true},
			{altered: 25, columns: "a b c", at: 30, position: 28, changed: true, from: 8, until: 25.5, possible: true},
			{altered: 35, columns: "a b c", at: 40, position: 38, changed: true, from: 8, until: 35.5},
		}},
		{"CDC is off", []step{
			{at: 10, position: 8, from: -1},
			{altered: 15, columns: "a b", off: true, at: 20, position: 18, changed: true, from: 8},
			{altered: 15, columns: "a b", off: true, at: 30, position: 28, from: 8},
			{altered: 35, columns: "a b", at: 40, position: 38, changed: true, from: 8, until: 35.5},
		}},
		{"CDC is off without another mark", []step{
			{at: 10, position: 8, from: -1},
			{off: true, at: 20, position: 18, changed: true, from: 8},
			{at: 30, position: 28, from: 8},
		}},
		{"the log is another one", []step{
			{at: 10, position: 3, from: -1},
			{altered: 15, logged: 15, columns: "a b", at: 20, position: 18, changed: true, from: 3, until: 15.5},
		}},
		{"the log is another one after it was altered", []step{
			{at: 10, position: 3, from: -1},
			{altered: 15, at: 20, position: 18, changed: true, from: 8, until: 15.5},
			{altered: 15, at: 30, position: 28, from: 8, until: 15.5},
			{altered: 35, logged: 35, at: 40, position: 38, changed: true, from: 3, until: 35.5},
		}},
		{"the table is another one", []step{
			{at: 10, position: 8, from: -1},
			{altered: 15, logged: 15, created: 15, at: 20, position: 18, changed: true, from: 8, until: 15.5},
		}},
		{"the log is another one, with all of the former read", []step{
			{at: 10, position: 9, from: -1},
			{logged: 15, at: 20, position: 18, changed: true, from: 8, until: 15.5},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			made := minute(-1000)
			w := gapWatch{facts: cdclog.TableInfo{Created: made, Logged: made, Altered: made}, columns: "a"}
			for i, s := range tt.steps {
				facts := cdclog.TableInfo{Created: made, Logged: made, Altered: made}
				if s.altered != 0 {
					facts.Altered = minute(float64(s.altered))
				}
				if s.logged != 0 {
					facts.Logged = minute(float64(s.logged))
				}
				if s.created != 0 {
					facts.Created = minute(float64(s.created))
				}
				if s.columns == "" {
					s.columns = "a"
				}
				if got := w.observe(facts, s.columns, !s.off, minute(float64(s.at)), minute(float64(s.position)), window); got != s.changed {
					t.Errorf("state %d: observe() = %v, want %v", i, got, s.changed)
				}
				switch {
				case s.from < 0:
					if w.open != nil {
						t.Errorf("state %d: gap %+v, want none", i, *w.open)
					}
				case w.open == nil:
					t.Fatalf("state %d: no gap, want one", i)
				default:
					want := Gap{From: minute(s.from), Possible: s.possible}
					if s.until != 0 {
						want.Until = minute(s.until)
					}
					if *w.open != want {
						t.Errorf("state %d: gap %+v, want %+v", i, *w.open, want)
					}
				}
			}
		})
	}
}

// A scan begins once the last rows of the gap are visible.
func TestGapWatch_Due(t *testing.T) {
	t.Parallel()
	until := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct {
		name string
		open *Gap
		now  time.Time
		want bool
	}{
		{"no gap", nil, until.Add(time.Hour), false},
		{"CDC is off", &Gap{}, until.Add(time.Hour), false},
		{"rows may not be visible", &Gap{Until: until}, until.Add(time.Minute - 1), false},
		{"all rows are visible", &Gap{Until: until}, until.Add(time.Minute), true},
	} {
		w := gapWatch{open: tt.open}
		if got := w.due(tt.now, time.Minute); got != tt.want {
			t.Errorf("%s: due() = %v, want %v", tt.name, got, tt.want)
		}
	}
}
