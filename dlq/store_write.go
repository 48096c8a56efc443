package dlq

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/gocql/gocql"
)

// Write stores a new letter and returns the status in which it stands.
//
// l.Status is Pending, Parked or Manual; empty means Pending. FirstFailedAt and
// LastFailedAt default to now. An event that has a letter already keeps it as it
// is, and its status is returned, so Bury may be repeated at will, after a
// crash too. Once it has returned nil, every list shows the letter; the relay
// may checkpoint past the event only then. After an error the letter may be
// there or not, and a repetition finds out. An *OtherTableError says that a letter
// of another table has the event's id.
func (s *Store) Write(ctx context.Context, l *DeadLetter) (Status, error) {
	row, err := s.newDeadLetter(l)
	if err != nil {
		return "", err
	}
	args := insertValues(row, Change{
		ID: gocql.UUIDFromTime(s.db.Now()), At: row.LastFailedAt, Action: ActionWrite, By: l.Metadata["host"], To: row.Status, Why: failureOf(row),
	})
	for a := s.db.Retry(ctx); ; {
		// The lists come first: a letter that stands is on all of them.
		err := s.lists.add(ctx, row, listsOf(row), true)
		if err == nil {
			var stands DeadLetter
			if stands, err = s.insert(ctx, row, args); err == nil {
				s.unlist(ctx, row, &stands)
				if stands.Table != row.Table {
					return "", &OtherTableError{EventID: row.EventID, Table: row.Table, Other: stands.Table}
				}
				return stands.Status, nil
			}
		}
		if permanent(err) || !a.Pause() {
			return "", err
		}
	}
}

func failureOf(l *DeadLetter) string {
	if l.ErrorText == "" {
		return l.ErrorClass
	}
	return l.ErrorClass + ": " + l.ErrorText
}

// newLetter is l as it will be stored.
func (s *Store) newDeadLetter(l *DeadLetter) (*DeadLetter, error) {
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
func (s *Store) insert(ctx context.Context, row *DeadLetter, args []any) (DeadLetter, error) {
	if err := s.db.CheckFence(); err != nil {
		return DeadLetter{}, err
	}
	applied, err := s.db.Apply(ctx, s.stmt.insert, args...)
	if err != nil {
		return DeadLetter{}, fmt.Errorf("bury event %s: %w", row.EventID, err)
	}
	if applied {
		return *row, nil
	}
	// Only what was asked for may be there already: read it as it stands.
	stands, err := s.read(ctx, row.EventID, s.stmt.entry, (*DeadLetter).entryDest, s.db.Consistency)
	if err != nil {
		return DeadLetter{}, fmt.Errorf("bury event %s again: %w", row.EventID, err)
	}
	return stands, nil
}

// unlist takes row off lists where the letter that stands is not.
func (s *Store) unlist(ctx context.Context, row, stands *DeadLetter) {
	off := listsWithout(row, stands)
	chain := !stands.Status.Open() || !sameChain(row, stands)
	if err := s.lists.drop(ctx, row, stands.Version, off, chain); err != nil {
		s.db.Log.Debug("stale entries of a dead letter stay for their readers", "event_id", row.EventID, "err", err)
	}
}

// change decides a change of a letter, by one lightweight transaction on the
// version that plan has seen, and returns the letter as it is after that,
// without what only publishing needs. plan may be called again, when somebody
// else was first; its *RefusedError ends the change.
//
// Lists come before the transaction and are cleared after it, so that a letter
// is never missing from the lists of its status.
func (s *Store) change(ctx context.Context, event gocql.UUID, action Action, plan func(*DeadLetter) (planned, error)) (DeadLetter, error) {
	c := changer{s: s, event: event, id: gocql.UUIDFromTime(s.db.Now()), action: action, plan: plan, cons: s.db.Consistency}
	for a := s.db.Retry(ctx); ; {
		l, done, err := c.try(ctx)
		switch {
		case done:
			return l, err
		case (errors.Is(err, ErrRefused) || errors.Is(err, ErrNotFound)) && c.cons != s.db.Serial:
			// What was seen at a weaker level may be out of date.
		case err != nil && permanent(err):
			return DeadLetter{}, err
		case !a.Pause():
			if err == nil {
				err = fmt.Errorf("%s dead letter %s: others changed it all the time", action, event)
			}
			return DeadLetter{}, err
		}
		c.cons = s.db.Serial
	}
}

// leave takes a letter off the lists on which it no longer stands.
func (s *Store) leave(ctx context.Context, m *move) {
	left := m.old.Status.Open() && !m.new.Status.Open()
	if err := s.lists.drop(ctx, &m.new, m.new.Version, listsWithout(&m.old, &m.new), left); err != nil {
		s.db.Log.Debug("stale entries of a dead letter stay for their readers", "event_id", m.new.EventID, "err", err)
	}
}

// update is the lightweight transaction.
func (s *Store) update(ctx context.Context, m *move, p *planned) (bool, error) {
	old, l := &m.old, &m.new
	set := append([]assignment{{"version", l.Version}, {"status", string(l.Status)}}, p.set...)
	var b strings.Builder
	b.WriteString("UPDATE " + s.stmt.table + " SET ")
	args := make([]any, 0, len(set)+6)
	for i, a := range set {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(a.column + " = ?")
		args = append(args, a.value)
	}
	switch {
	case p.silent:
	case p.past != nil:
		past := maps.Clone(p.past)
		past[l.Version] = p.line.text()
		b.WriteString(", history = ?")
		args = append(args, past)
	default:
		b.WriteString(", history[?] = ?")
		args = append(args, l.Version, p.line.text())
		if l.Version > maxHistory {
			b.WriteString(", history[?] = ?")
			args = append(args, l.Version-maxHistory, nil)
		}
	}
	b.WriteString(" WHERE event_id = ? IF version = ?")
	args = append(args, l.EventID, old.Version)

	if err := s.db.CheckFence(); err != nil {
		return false, err
	}
	applied, err := s.db.Apply(ctx, b.String(), args...)
	if err != nil {
		return false, fmt.Errorf("change dead letter %s from %s to %s: %w", l.EventID, old.Status, l.Status, err)
	}
	return applied, nil
}

// buryValues are the arguments of the insert, in the order of buryColumns. What
// a letter lacks is left unset, so that it writes no tombstones.
func insertValues(l *DeadLetter, c Change) []any {
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
