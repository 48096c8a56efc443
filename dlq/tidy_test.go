package dlq

import (
	"slices"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// announcedHours returns the number of hours of lists that readers query.
func (b *fixture) announcedHours(t testing.TB) (n int) {
	t.Helper()
	for _, kind := range announcedKinds {
		iter := b.db.Select(t.Context(), b.lists.stmt.allBuckets, kind).Iter()
		n += iter.NumRows()
		if err := iter.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func mustTidy(t testing.TB, s *Store) int {
	t.Helper()
	n, err := s.Tidy(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Readers do not query the removed hours any more, and query all others.
func TestTidy_TakesEmptyHoursOff(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ids := b.writeMany(t, 5, func(i int, l *DeadLetter) { l.FirstFailedAt = b.clock.Now().Add(-time.Duration(i) * time.Hour) })
	before := b.announcedHours(t)
	if n := mustTidy(t, b.Store); n != 0 {
		t.Errorf("Tidy found %d hours without a dead letter, want none", n)
	}
	for _, id := range ids[1:] {
		if err := b.do(t, id, ActionResolve); err != nil {
			t.Fatal(err)
		}
	}
	b.clock.advance(3 * time.Hour)
	// Each dead letter moved from the lists of its status, class, type and table to four
	// others.
	if n := mustTidy(t, b.Store); n != 4*len(ids[1:]) {
		t.Errorf("Tidy found %d hours, want %d", n, 4*len(ids[1:]))
	}
	if now := b.announcedHours(t); now != before {
		t.Errorf("%d hours are asked for, want %d as before the dead letters moved", now, before)
	}
	if n := mustTidy(t, b.Store); n != 0 {
		t.Errorf("once more Tidy found %d hours, want none", n)
	}
	for _, id := range ids {
		b.mustBeFound(t, id)
	}
}

// An hour begins with so many tombstones that the first page of its list is empty.
func TestTidy_LeavesAnHourThatBeginsWithTombstones(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.bring(t, Pending)
	b.clock.advance(5 * time.Hour)
	b.Node.Faults().MustAdd(faults.Rule{
		Match:  faults.Match{Table: "dead_letter_lookups"},
		Effect: faults.Effect{Decide: func(engine.Op) (engine.Verdict, bool) { return engine.Verdict{DeadPage: true}, true }},
	})
	announced := b.announcedHours(t)
	mustTidy(t, b.Store)
	stats, err := b.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b.Node.Faults().Clear()
	if l := b.mustRead(t, id); !stats.Oldest.Equal(l.FirstFailedAt) {
		t.Errorf("the oldest open dead letter first failed %s, want %s", stats.Oldest, l.FirstFailedAt)
	}
	if n := b.announcedHours(t); n != announced {
		t.Errorf("%d hours are asked for, want %d as before", n, announced)
	}
	b.mustBeFound(t, id)
}

// mustBeFound checks that listings by each field of the dead letter contain it.
func (b *fixture) mustBeFound(t testing.TB, id gocql.UUID) {
	t.Helper()
	l := b.mustRead(t, id)
	for _, f := range []Filter{
		{Status: []Status{l.Status}}, {Status: []Status{l.Status}, ErrorClass: l.ErrorClass}, {ErrorClass: l.ErrorClass}, {EventType: l.EventType},
	} {
		if !slices.ContainsFunc(b.listAll(t, f), func(x DeadLetter) bool { return x.EventID == id }) {
			t.Errorf("List(%+v) does not find a %s dead letter", f, l.Status)
		}
	}
}

// A process uses hours that it announced before another found them empty.
func TestTidy_LeavesWhatIsReliedOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.bring(t, Pending)
	b.clock.advance(5 * time.Hour)
	cleaner := b.another(t)
	emptied := 0
	for range 8 {
		b.clock.advance(9 * time.Minute)
		for _, a := range []Action{ActionClaim, ActionUnclaim} {
			if err := b.do(t, id, a); err != nil {
				t.Fatal(err)
			}
			emptied += mustTidy(t, cleaner)
			b.mustBeFound(t, id)
		}
	}
	if emptied == 0 {
		t.Error("Tidy never found an hour without a dead letter: this shows nothing")
	}
	b.clock.advance(5 * time.Hour)
	mustTidy(t, cleaner)
	if err := b.do(t, id, ActionClaim); err != nil {
		t.Fatal(err)
	}
	b.mustBeFound(t, id)
}

// A process pauses between the announcement of an hour and the entry in it, for so long
// that another removes the hour.
func TestTidy_WhileAProcessPauses(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := testDeadLetter("a", 1)
	l.FirstFailedAt = b.clock.Now().Add(-5 * time.Hour)
	row, err := b.newDeadLetter(l)
	if err != nil {
		t.Fatal(err)
	}
	cleaner := b.another(t)
	hours := len(listKeys(row)) - 1 // but for the aggregate's
	asked := 0
	frozen := b.another(t, WithClock(world.Clock(func() time.Time {
		at := b.clock.Now()
		if asked++; asked == hours {
			b.clock.advance(2 * time.Hour)
			if n := mustTidy(t, cleaner); n != hours-1 {
				t.Errorf("Tidy found %d hours without a dead letter, want the %d that were announced", n, hours-1)
			}
		}
		return at
	})))
	if err := frozen.lists.add(t.Context(), listed{row, listKeys(row), true}); err != nil {
		t.Fatal(err)
	}
	// As Write continues after the entries of lists.
	if _, _, err := b.insert(t.Context(), row, insertValues(row, Change{ID: gocql.UUIDFromTime(b.clock.Now()), At: row.LastFailedAt, Action: ActionWrite, To: row.Status})); err != nil {
		t.Fatal(err)
	}
	b.mustBeFound(t, l.EventID)
}

// The clock of a host may be hours behind: its announcements after an hour was removed are there.
func TestTidy_AHostWhoseClockIsBehind(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.bring(t, Pending)
	if err := b.do(t, id, ActionClaim); err != nil {
		t.Fatal(err)
	}
	b.clock.advance(5 * time.Hour)
	if mustTidy(t, b.Store) == 0 {
		t.Fatal("Tidy found no hour without a dead letter: this shows nothing")
	}
	behind := *b
	behind.Store = b.another(t, WithClock(world.Clock(func() time.Time { return b.clock.Now().Add(-2 * time.Hour) })))
	if err := behind.do(t, id, ActionUnclaim); err != nil {
		t.Fatal(err)
	}
	b.mustBeFound(t, id)
}
