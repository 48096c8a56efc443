package dlq

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gocql/gocql"
)

// Bury stores a new letter and returns the status in which it stands.
//
// l.Status is Pending, Parked or Manual; empty means Pending. FirstFailedAt and
// LastFailedAt default to now. An event that has a letter already keeps it as it
// is, and its status is returned, so Bury may be repeated at will, after a
// crash too. Once it has returned nil, every list shows the letter; the relay
// may checkpoint past the event only then. After an error the letter may be
// there or not, and a repetition finds out. An *OtherTableError says that a letter
// of another table has the event's id.
func (s *Store) Bury(ctx context.Context, l *Letter) (Status, error) {
	row, err := s.newLetter(l)
	if err != nil {
		return "", err
	}
	args := buryValues(row, Change{
		ID: gocql.UUIDFromTime(s.db.Now()), At: row.LastFailedAt, Action: ActionBury, By: l.Metadata["host"], To: row.Status, Why: why(row),
	})
	for a := s.db.Retry(ctx); ; {
		// The lists come first: a letter that stands is on all of them.
		err := s.lists.add(ctx, row, shelves(row), true)
		if err == nil {
			var stands Letter
			if stands, err = s.insert(ctx, row, args); err == nil {
				s.unlist(ctx, row, &stands)
				if stands.Table != row.Table {
					return "", &OtherTableError{EventID: row.EventID, Table: row.Table, Other: stands.Table}
				}
				return stands.Status, nil
			}
		}
		if hopeless(err) || !a.Pause() {
			return "", err
		}
	}
}

func why(l *Letter) string {
	if l.ErrorText == "" {
		return l.ErrorClass
	}
	return l.ErrorClass + ": " + l.ErrorText
}

// newLetter is l as it will be stored.
func (s *Store) newLetter(l *Letter) (*Letter, error) {
	var errs []error
	if l.EventID == (gocql.UUID{}) {
		errs = append(errs, errors.New("event id is zero"))
	}
	if keyspace, table, ok := strings.Cut(l.Table, "."); !ok || keyspace == "" || table == "" {
		errs = append(errs, fmt.Errorf("table %q: name it keyspace.table", l.Table))
	}
	row := *l
	if row.Status == "" {
		row.Status = Pending
	}
	switch row.Status {
	case Pending, Parked, Manual:
	default:
		errs = append(errs, fmt.Errorf("status %q: a new letter is pending, parked or manual", l.Status))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("bury event %s: %w", l.EventID, err)
	}
	row.Version = 1
	if row.FailureKey == "" && row.Status != Parked {
		row.FailureKey, row.FailureRepeats = FailureKey(row.ErrorClass, row.ErrorCode, row.ErrorText), 1
	}
	now := s.db.Millis()
	if row.FirstFailedAt.IsZero() {
		row.FirstFailedAt = now
	}
	if row.LastFailedAt.IsZero() {
		row.LastFailedAt = row.FirstFailedAt
	}
	for _, t := range []*time.Time{&row.FirstFailedAt, &row.LastFailedAt, &row.NextAttempt, &row.CreatedAt, &row.DeliverAt} {
		*t = t.UTC().Truncate(time.Millisecond)
	}
	return &row, nil
}

// insert stores the letter if there is none and returns the one that stands,
// as far as lists need it.
func (s *Store) insert(ctx context.Context, row *Letter, args []any) (Letter, error) {
	if err := s.db.CheckFence(); err != nil {
		return Letter{}, err
	}
	applied, err := s.db.Apply(ctx, s.stmt.bury, args...)
	if err != nil {
		return Letter{}, fmt.Errorf("bury event %s: %w", row.EventID, err)
	}
	if applied {
		return *row, nil
	}
	// Only what was asked for may be there already: read it as it stands.
	stands, err := s.read(ctx, row.EventID, s.stmt.entry, (*Letter).entryDest, s.db.Consistency)
	if err != nil {
		return Letter{}, fmt.Errorf("bury event %s again: %w", row.EventID, err)
	}
	return stands, nil
}

// unlist takes row off lists where the letter that stands is not.
func (s *Store) unlist(ctx context.Context, row, stands *Letter) {
	off := shelvesLess(row, stands)
	chain := !stands.Status.Open() || !sameChain(row, stands)
	if err := s.lists.drop(ctx, row, stands.Version, off, chain); err != nil {
		s.db.Log.Debug("stale entries of a dead letter stay for their readers", "event_id", row.EventID, "err", err)
	}
}

// shelvesLess are the shelves of a on which b does not stand.
func shelvesLess(a, b *Letter) []shelf {
	var out []shelf
	moved := !a.FirstFailedAt.Equal(b.FirstFailedAt)
	have := make(map[shelf]bool, 4)
	for _, f := range shelves(b) {
		have[f] = true
	}
	for _, f := range shelves(a) {
		if moved || !have[f] {
			out = append(out, f)
		}
	}
	return out
}

func sameChain(a, b *Letter) bool {
	return a.Table == b.Table && a.AggregateID == b.AggregateID && a.Sequence == b.Sequence && a.WrittenAt == b.WrittenAt
}

// buryValues are the arguments of the insert, in the order of buryColumns. What
// a letter lacks is left unset, so that it writes no tombstones.
func buryValues(l *Letter, c Change) []any {
	return []any{
		l.EventID, l.Version, string(l.Status), l.Table, l.AggregateID, l.AggregateType, l.EventType, l.Sequence, unsetTime(l.CreatedAt),
		unsetTime(l.DeliverAt), l.WrittenAt, l.Topic, l.ErrorClass, l.Attempts, l.Replays, l.FirstFailedAt, l.LastFailedAt, l.Strategy,
		unsetTime(l.NextAttempt), unsetNil(l.Payload, l.Payload == nil), l.ContentType, unsetNil(l.Headers, l.Headers == nil),
		l.ErrorCode, l.ErrorText, unsetNil(l.ErrorChain, l.ErrorChain == nil), unsetNil(l.Metadata, l.Metadata == nil),
		unsetNil(l.Raw, l.Raw == nil), l.Rule, unsetNil(l.Waiting, l.Waiting == ""), l.FailureKey, l.FailureRepeats,
		map[int64]string{l.Version: c.text()},
	}
}

func unsetTime(t time.Time) any { return unsetNil(t, t.IsZero()) }

func unsetNil(v any, none bool) any {
	if none {
		return gocql.UnsetValue
	}
	return v
}
