package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox/internal/attempt"
)

// step is a change of a mark to the number of an event, with its effect.
type step struct {
	Event
	order   Order
	entries []gocql.BatchEntry
}

// mark is the number and the epoch of the last applied event of a partition, as its columns have
// them: nil for null. A partition without an event has no number.
type mark struct{ sequence, epoch *int64 }

// last returns the mark as values; ok is false without an event. A mark without an epoch is of
// epoch 0: its event, or its table, is older than the first epoch with a number.
func (m mark) last() (sequence, epoch int64, ok bool) {
	if m.epoch != nil {
		epoch = *m.epoch
	}
	if m.sequence == nil {
		return 0, epoch, false
	}
	return *m.sequence, epoch, true
}

// condition is the mark that a partition must have before a step.
type condition struct {
	kind conditionKind
	mark mark  // that of equal; of less only the epoch
	want int64 // the number that must come first, of gap
}

type conditionKind int

const (
	equal    conditionKind = iota // the mark is that of the condition
	less                          // the number is less than that of the event, in the same epoch
	finished                      // not a condition: the event was applied
	ended                         // not a condition: an event of a later epoch was applied
	gap                           // not a condition: want must come first
)

// is reports whether two conditions are the same.
func (c condition) is(other condition) bool {
	same := func(a, b *int64) bool { return a == b || a != nil && b != nil && *a == *b }
	return c.kind == other.kind && same(c.mark.sequence, other.mark.sequence) && same(c.mark.epoch, other.mark.epoch)
}

// first is the likely condition, before the mark is known.
func (s step) first() condition {
	before := s.Sequence - 1
	switch {
	case s.Sequence == 1:
		return condition{kind: equal}
	case s.order == Increasing:
		return condition{kind: less, mark: mark{epoch: &s.Epoch}}
	}
	return condition{kind: equal, mark: mark{&before, &s.Epoch}}
}

// after is the condition for a partition with the given mark. The number of the first event of a
// later epoch may have been given before: the numbers of the aggregate have begun again somewhere.
func (s step) after(m mark) condition {
	have, epoch, ok := m.last()
	switch {
	case !ok && (s.Sequence == 1 || s.order != FromOne):
		return condition{kind: equal, mark: m}
	case !ok:
		return condition{kind: gap, want: 1}
	case s.Epoch < epoch:
		return condition{kind: ended}
	case s.Epoch == epoch && have >= s.Sequence:
		return condition{kind: finished}
	case s.order != Increasing && s.Sequence > have+1:
		return condition{kind: gap, want: have + 1}
	case s.Epoch == epoch && s.order == Increasing:
		return condition{kind: less, mark: mark{epoch: m.epoch}}
	}
	return condition{kind: equal, mark: m}
}

// again reports whether the mark of a condition is that of an event with the step's number in an
// earlier epoch: the event of the step, or the one that it replaces.
func (s step) again(c condition) bool {
	have, epoch, ok := c.mark.last()
	return ok && c.kind == equal && epoch < s.Epoch && have == s.Sequence
}

// advance applies a step, unless it was applied before.
func (f *Fence) advance(ctx context.Context, s step) (Outcome, error) {
	if err := f.check(&s.Event); err != nil {
		return Unknown, err
	}
	cond, lost := s.first(), false // lost: an attempt without a response may have been applied
	for attempts := 1; ; attempts++ {
		applied, have, err := f.try(ctx, s, cond)
		if applied {
			return Applied, nil
		}
		failed := err
		if err != nil && !attempt.Invalid(err) {
			lost = true
			// The read carries out a round that was decided only.
			have, _, err = f.last(ctx, s.Key)
		}
		if attempt.Invalid(err) {
			return Unknown, f.newRefusal(s, err)
		}
		next := cond
		if err == nil {
			next = s.after(have)
		}
		if next.kind == finished || s.again(next) {
			repeated, err := f.repeats(ctx, s)
			if err != nil {
				return Unknown, err
			}
			if repeated && next.kind != finished {
				return Duplicate, nil // its row was written again since the epoch began
			}
		}
		switch {
		case next.kind == finished && lost:
			return Applied, nil
		case next.kind == finished, next.kind == ended:
			return Duplicate, nil
		case next.kind == gap:
			return Unknown, &GapError{Table: f.table.String(), Key: slices.Clone(s.Key), Want: next.want, Sequence: s.Sequence}
		case failed == nil && next.is(cond) && len(s.entries) > 0:
			return Unknown, fmt.Errorf("inbox: event %d of %s %v: %w", s.Sequence, f.table, s.Key, ErrCondition)
		}
		if attempts == attempt.Max {
			return Unknown, fmt.Errorf("inbox: event %d of %s %v: outcome unknown after %d attempts; deliver it again: %w", s.Sequence, f.table, s.Key, attempts, errors.Join(failed, err))
		}
		if failed != nil {
			if err := attempt.Pause(ctx, attempts); err != nil {
				return Unknown, fmt.Errorf("inbox: event %d of %s %v: outcome unknown; deliver it again: %w", s.Sequence, f.table, s.Key, errors.Join(err, failed))
			}
		}
		cond = next
	}
}

// newRefusal returns the error for a statement that the database cannot execute.
func (f *Fence) newRefusal(s step, err error) error {
	if c, ok := attempt.Code(err); ok && c == gocql.ErrCodeInvalid && len(s.entries) > 0 {
		return fmt.Errorf("inbox: event %d of %s %v is refused: %w; correct the statements of the effect: they may write only the partition of its key in %s", s.Sequence, f.table, s.Key, err, f.table)
	}
	return fmt.Errorf("inbox: event %d of %s %v is refused: %w", s.Sequence, f.table, s.Key, err)
}

// try executes a step under a condition. If it is not applied, have is the mark.
func (f *Fence) try(ctx context.Context, s step, cond condition) (applied bool, have mark, err error) {
	stmt, want := f.equal, cond.mark.sequence // null equals null in a condition
	if cond.kind == less {
		stmt, want = f.less, &s.Sequence
	}
	// Clients' write times have no effect on conditional statements.
	b := f.session.NewBatch(gocql.LoggedBatch).WithContext(ctx).RetryPolicy(attempt.Never{}).SerialConsistency(attempt.Serial(f.cfg.LocalSerial)).DefaultTimestamp(false)
	set, is := []any{s.Sequence}, []any{want}
	if f.cfg.EpochColumn != "" {
		set, is = append(set, s.Epoch), append(is, cond.mark.epoch)
	}
	if f.cfg.IDColumn != "" {
		set = append(set, s.ID) // empty where it is unknown: the former one would be wrong
	}
	b.Query(stmt, slices.Concat(set, s.Key, is)...)
	b.Entries = append(b.Entries, s.entries...)
	applied, iter, err := f.session.MapExecuteBatchCAS(b, map[string]any{f.cfg.Column: &have.sequence, f.cfg.EpochColumn: &have.epoch})
	if err != nil {
		return false, mark{}, err
	}
	// Cassandra returns no columns if it found no row, and then there is no mark. The mark
	// of a later read would be another one than that of the condition.
	return applied, have, iter.Close()
}

// last reads the mark of a partition, and the id that was written with it, after a decided round.
func (f *Fence) last(ctx context.Context, key Key) (have mark, id string, err error) {
	level := gocql.Consistency(attempt.Serial(f.cfg.LocalSerial))
	iter := f.session.Query(f.read, key...).WithContext(ctx).Consistency(level).Idempotent(true).Iter()
	iter.MapScan(map[string]any{f.cfg.Column: &have.sequence, f.cfg.EpochColumn: &have.epoch, f.cfg.IDColumn: &id})
	return have, id, iter.Close()
}

// repeats reports whether the event that was applied last is known to be that of a step with its
// number. Another event with the number in the same epoch is a *ConflictError.
func (f *Fence) repeats(ctx context.Context, s step) (bool, error) {
	if f.cfg.IDColumn == "" || s.ID == "" {
		return false, nil
	}
	have, id, err := f.last(ctx, s.Key)
	if err != nil {
		return false, fmt.Errorf("inbox: read the id of the last applied event of %s %v: %w", f.table, s.Key, err)
	}
	sequence, epoch, ok := have.last()
	switch {
	case !ok || sequence != s.Sequence || id == "":
		return false, nil
	case id == s.ID:
		return true, nil
	case epoch == s.Epoch:
		return false, &ConflictError{Table: f.table.String(), Event: s.Event, Applied: id}
	}
	return false, nil
}
