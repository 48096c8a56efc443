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

// Write stores a new dead letter and returns its status.
//
// l.Status is Pending, Blocked or Suspended; empty means Pending. FirstFailedAt and
// LastFailedAt default to now. Lists are in the order of FirstFailedAt, so a caller that
// repeats Write for longer sets it again. If the event already has a dead letter, Write leaves it
// unchanged and returns its status, so Write may be repeated, also after a crash. After
// it has returned nil, every list contains the dead letter; only then may the relay
// checkpoint past the event. After an error the dead letter may be stored or not;
// repeat the call. An *OtherTableError reports a dead letter of another table with the
// same event id, and ErrOtherRecord one of another record of a subscription, or of an event of
// another aggregate.
func (s *Store) Write(ctx context.Context, l *DeadLetter) (Status, error) {
	row, err := s.newDeadLetter(l)
	if err != nil {
		return "", err
	}
	args := insertValues(row, Change{
		ID: gocql.UUIDFromTime(s.db.Clock.Now()), At: row.LastFailedAt, Action: ActionWrite, By: l.Metadata["host"], To: row.Status, Why: formatFailure(row),
	})
	for a := s.db.Retry(ctx); ; {
		// The lists are written first, so that a stored dead letter is in all of them.
		err := s.lists.add(ctx, listed{row, listKeys(row), true})
		if err == nil {
			var stored DeadLetter
			var applied bool
			if stored, applied, err = s.insert(ctx, row, args); err == nil {
				s.unlist(ctx, row, &stored)
				if stored.Table != row.Table {
					return "", &OtherTableError{EventID: row.EventID, Table: row.Table, Other: stored.Table}
				}
				if applied {
					return stored.Status, nil
				}
				if err = s.sameRecord(ctx, row, &stored); err == nil {
					return stored.Status, nil
				}
			}
		}
		if permanent(err) || errors.Is(err, ErrOtherRecord) || !a.Pause() {
			l.listed = append(l.listed, row.FirstFailedAt)
			return "", err
		}
	}
}

func formatFailure(l *DeadLetter) string {
	if l.ErrorText == "" {
		return l.ErrorClass
	}
	return l.ErrorClass + ": " + l.ErrorText
}

// newDeadLetter returns l as it will be stored.
func (s *Store) newDeadLetter(l *DeadLetter) (*DeadLetter, error) {
	var errs []error
	if l.EventID == (gocql.UUID{}) {
		errs = append(errs, errors.New("event id is zero"))
	}
	if keyspace, table, ok := strings.Cut(l.Table, "."); !ok || keyspace == "" || table == "" {
		errs = append(errs, fmt.Errorf("table %q: name it keyspace.table, or subscription.NAME", l.Table))
	}
	errs = append(errs, checkPriority(l.Priority), checkTags(l.Tags))
	row := *l
	row.Tags = sortTags(l.Tags)
	if row.Status == "" {
		row.Status = Pending
	}
	switch row.Status {
	case Pending, Blocked, Suspended:
	default:
		errs = append(errs, fmt.Errorf("status %q: a new dead letter is pending, blocked or suspended", l.Status))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("write dead letter %s: %w", l.EventID, err)
	}
	row.Version = 1
	if row.FailureKey == "" && row.Status != Blocked {
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

// insert stores the dead letter if the event has none, which applied reports. It returns the
// stored one, with the fields that lists need.
func (s *Store) insert(ctx context.Context, row *DeadLetter, args []any) (stored DeadLetter, applied bool, err error) {
	if err := s.db.CheckFence(); err != nil {
		return DeadLetter{}, false, err
	}
	applied, err = s.db.Apply(ctx, s.stmt.insert, args...)
	if err != nil {
		return DeadLetter{}, false, fmt.Errorf("write dead letter %s: %w", row.EventID, err)
	}
	if applied {
		return *row, true, nil
	}
	// The event has a dead letter already: read it.
	stored, err = s.read(ctx, row.EventID, s.stmt.entry, (*DeadLetter).entryDest, s.db.Consistency)
	if err != nil {
		return DeadLetter{}, false, fmt.Errorf("write dead letter %s: read the stored one: %w", row.EventID, err)
	}
	return stored, false, nil
}

// unlist removes row, as this call and failed ones listed it, from the lists that do not
// contain the stored dead letter.
func (s *Store) unlist(ctx context.Context, row, stored *DeadLetter) {
	chain := !stored.Status.Open() || !sameChain(row, stored)
	for _, at := range append([]time.Time{row.FirstFailedAt}, row.listed...) {
		begun := *row
		begun.FirstFailedAt, begun.Version = at, stored.Version
		s.lists.drop(ctx, listed{&begun, listsWithout(&begun, stored), chain})
	}
}

// change makes one change of a dead letter by a lightweight transaction on the version
// that plan has read. It returns the dead letter after the change, without payload,
// headers and error texts. It calls plan again if another process was first; a
// *RefusedError of plan ends the change.
//
// Entries of lists are added before the transaction and removed after it, so that a
// dead letter is never missing from the lists of its status.
func (s *Store) change(ctx context.Context, event gocql.UUID, action Action, plan func(*DeadLetter) (planned, error)) (DeadLetter, error) {
	c := changer{s: s, event: event, id: gocql.UUIDFromTime(s.db.Clock.Now()), action: action, plan: plan, cons: s.db.Consistency}
	for a := s.db.Retry(ctx); ; {
		l, done, err := c.try(ctx)
		switch {
		case done:
			return l, err
		case (errors.Is(err, ErrRefused) || errors.Is(err, ErrNotFound)) && c.cons != s.db.Serial:
			// A read at a weaker level may be out of date: repeat it at the serial
			// level.
		case err != nil && permanent(err):
			return DeadLetter{}, err
		case !a.Pause():
			if err == nil {
				err = fmt.Errorf("%s dead letter %s: it changed concurrently in every attempt", action, event)
			}
			return DeadLetter{}, err
		}
		c.cons = s.db.Serial
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

// insertValues returns the arguments of the insert, in the order of insertColumns.
// Absent fields are unset, so that they write no tombstones.
func insertValues(l *DeadLetter, c Change) []any {
	return []any{
		l.EventID, l.Version, string(l.Status), l.Table, l.AggregateID, l.AggregateType, l.EventType, l.Sequence, unsetTime(l.CreatedAt),
		unsetTime(l.DeliverAt), l.WrittenAt, l.Topic, l.ErrorClass, l.Attempts, l.Replays, l.FirstFailedAt, l.LastFailedAt, l.Strategy,
		unsetTime(l.NextAttempt), unsetNil(l.Payload, l.Payload == nil), l.ContentType, unsetNil(l.Headers, l.Headers == nil),
		l.ErrorCode, l.ErrorText, unsetNil(l.ErrorChain, l.ErrorChain == nil), unsetNil(l.Metadata, l.Metadata == nil),
		unsetNil(l.Raw, l.Raw == nil), l.Rule, unsetNil(l.Waiting, l.Waiting == ""), l.FailureKey, l.FailureRepeats,
		unsetNil(l.Priority, l.Priority == 0), unsetNil(l.Tags, len(l.Tags) == 0), unsetNil(l.Unblocked, !l.Unblocked),
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
