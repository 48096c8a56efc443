package dlq

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"
)

// Filter says which letters; what is left zero does not matter.
type Filter struct {
	// Status, unless empty, are the statuses of which the letter has one.
	Status []Status `json:"status,omitempty" nullable:"false"`
	// ErrorClass, EventType and Aggregate are the letter's.
	ErrorClass string `json:"error_class,omitempty"`
	EventType  string `json:"event_type,omitempty"`
	Aggregate  string `json:"aggregate,omitempty"`
	// Since and Until bound FirstFailedAt; Until itself is not in.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
	// After continues a listing behind a letter.
	After Position `json:"after,omitzero"`
}

// Position is a letter's place in listings.
type Position struct {
	FirstFailedAt time.Time  `json:"first_failed_at"`
	EventID       gocql.UUID `json:"event_id"`
}

// Position is the letter's place in listings.
func (l *Letter) Position() Position { return Position{l.FirstFailedAt, l.EventID} }

// ErrStop, returned by the function that List calls, ends the listing without an
// error.
var ErrStop = errors.New("stop")

// latest is after every letter.
var latest = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// Validate returns all errors of f.
func (f *Filter) Validate() error {
	var errs []error
	for _, s := range f.Status {
		if !known(s) {
			errs = append(errs, fmt.Errorf("status %q: use one of %v", s, Statuses))
		}
	}
	if !f.Since.IsZero() && !f.Until.IsZero() && !f.Since.Before(f.Until) {
		errs = append(errs, fmt.Errorf("since %s is not before until %s", f.Since.Format(time.RFC3339), f.Until.Format(time.RFC3339)))
	}
	return errors.Join(errs...)
}

// Empty reports whether f selects every dead letter.
func (f *Filter) Empty() bool {
	return len(f.Status) == 0 && f.ErrorClass == "" && f.EventType == "" && f.Aggregate == "" &&
		f.Since.IsZero() && f.Until.IsZero() && f.After.FirstFailedAt.IsZero()
}

func known(s Status) bool {
	for _, k := range Statuses {
		if k == s {
			return true
		}
	}
	return false
}

// matches tells whether the letter, as it stands, is one of those meant.
func (f *Filter) matches(l *Letter) bool {
	ok := len(f.Status) == 0
	for _, s := range f.Status {
		ok = ok || s == l.Status
	}
	return ok && (f.ErrorClass == "" || f.ErrorClass == l.ErrorClass) && (f.EventType == "" || f.EventType == l.EventType) &&
		(f.Aggregate == "" || f.Aggregate == l.AggregateID) && !l.FirstFailedAt.Before(f.Since) &&
		(f.Until.IsZero() || l.FirstFailedAt.Before(f.Until))
}

// List calls each for the letters that f means, as they stand, without payload
// and headers; those that died last come first. An error of each ends it.
//
// Letters that change meanwhile may be missing, or shown as they were. The cost
// is that of the entries on the shortest list that all criteria share, not of
// the table.
func (s *Store) List(ctx context.Context, f Filter, each func(*Letter) error) error {
	if err := f.Validate(); err != nil {
		return fmt.Errorf("list dead letters: %w", err)
	}
	r := s.lists.reader(&f)
	defer r.close()
	limit := latest
	if !f.After.FirstFailedAt.IsZero() {
		limit = f.After.FirstFailedAt
	}
	l := listing{s: s, f: &f, each: each, size: firstLookup}
	for {
		g, ok, err := r.next(ctx, limit)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		limit = g.at
		if err := l.add(ctx, g); err != nil {
			if errors.Is(err, ErrStop) {
				return nil
			}
			return err
		}
	}
	if err := l.flush(ctx); err != nil && !errors.Is(err, ErrStop) {
		return err
	}
	return nil
}

// reader reads the entries of every letter that f may mean.
func (ls *lists) reader(f *Filter) reader {
	var all []reader
	add := func(kind []string, values ...string) {
		var some []reader
		for _, k := range kind {
			for _, v := range values {
				sh := &shelfReader{lists: ls, shelf: shelf{k, v}, since: f.Since, until: f.Until}
				if sh.since.IsZero() {
					sh.since = time.Unix(0, 0).UTC()
				}
				if sh.until.IsZero() {
					sh.until = latest
				}
				some = append(some, sh)
			}
		}
		all = append(all, newAnyOf(some))
	}
	if f.Aggregate != "" {
		add([]string{kindAggregate}, f.Aggregate)
		return newAllOf(all) // short enough
	}
	open, done := len(f.Status) == 0, len(f.Status) == 0
	for _, st := range f.Status {
		open, done = open || st.Open(), done || !st.Open()
	}
	both := func(openKind, doneKind string) (kinds []string) {
		if open {
			kinds = append(kinds, openKind)
		}
		if done {
			kinds = append(kinds, doneKind)
		}
		return kinds
	}
	if f.ErrorClass != "" {
		add(both(kindOpenClass, kindDoneClass), f.ErrorClass)
	}
	if f.EventType != "" {
		add(both(kindOpenType, kindDoneType), f.EventType)
	}
	if len(f.Status) > 0 || len(all) == 0 {
		var values []string
		for _, st := range f.Status {
			values = append(values, string(st))
		}
		if len(values) == 0 {
			for _, st := range Statuses {
				values = append(values, string(st))
			}
		}
		add([]string{kindStatus}, values...)
	}
	return newAllOf(all)
}

const (
	// firstLookup is how many letters are looked at first: a short listing reads
	// little.
	firstLookup = 20
	maxLookup   = 100
)

// listing gathers entries and looks at their letters.
type listing struct {
	s    *Store
	f    *Filter
	each func(*Letter) error
	rows []row
	size int
}

func (l *listing) add(ctx context.Context, g group) error {
	sortByEvent(g.rows)
	after := l.f.After
	for _, r := range g.rows {
		if r.at.Equal(after.FirstFailedAt) && bytes.Compare(r.event[:], after.EventID[:]) <= 0 {
			continue
		}
		if n := len(l.rows); n >= l.size && l.rows[n-1].event != r.event {
			if err := l.flush(ctx); err != nil {
				return err
			}
			l.size = min(2*l.size, maxLookup)
		}
		l.rows = append(l.rows, r)
	}
	return nil
}

// flush calls each for the letters of the rows that stand there and are meant.
func (l *listing) flush(ctx context.Context) error {
	rows := l.rows
	l.rows = l.rows[:0]
	if len(rows) == 0 {
		return nil
	}
	var ids []gocql.UUID
	for _, r := range rows {
		if n := len(ids); n == 0 || ids[n-1] != r.event {
			ids = append(ids, r.event)
		}
	}
	letters, err := l.s.readMany(ctx, ids)
	if err != nil {
		return err
	}
	var last gocql.UUID
	for i, r := range rows {
		letter, ok := letters[r.event]
		if !ok {
			continue // about to be stored, or never
		}
		stands := letter.FirstFailedAt.Equal(r.at)
		if !stands || !onShelf(&letter, r.shelf) {
			l.s.lists.dropRow(ctx, r, letter.Version)
		}
		if !stands || i > 0 && last == r.event || !l.f.matches(&letter) {
			continue
		}
		last = r.event
		if err := l.each(&letter); err != nil {
			return err
		}
	}
	return nil
}

func onShelf(l *Letter, f shelf) bool {
	for _, g := range shelves(l) {
		if g == f {
			return true
		}
	}
	return false
}

// dropRow removes an entry whose letter stood elsewhere at version.
func (ls *lists) dropRow(ctx context.Context, r row, version int64) {
	ctx, cancel := context.WithTimeout(ctx, ls.db.Timeout)
	defer cancel()
	err := ls.db.Query(ctx, ls.stmt.lookupDrop, droppedAt(version), r.shelf.kind, r.shelf.value, r.shelf.bucketOf(r.at), r.at, r.event).
		Idempotent(true).Exec()
	if err != nil {
		ls.db.Log.Debug("a stale entry of a list stays", "event_id", r.event, "err", err)
	}
}
