package inbox

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/gocql/gocql"
)

// step is a change of a mark to the number of an event, with its effect.
type step struct {
	key      Key
	sequence int64
	order    Order
	entries  []gocql.BatchEntry
}

// condition is the mark that a partition must have before a step.
type condition struct {
	kind  conditionKind
	value int64
}

type conditionKind int

const (
	absent   conditionKind = iota // there is no mark
	equal                         // the mark is value
	less                          // the mark is less than value
	finished                      // not a condition: the event was applied
	gap                           // not a condition: value must come first
)

// first is the likely condition, before the mark is known.
func (s step) first() condition {
	switch {
	case s.sequence == 1:
		return condition{kind: absent}
	case s.order == Increasing:
		return condition{less, s.sequence}
	}
	return condition{equal, s.sequence - 1}
}

// after is the condition for a partition whose mark is have, nil if there is none.
func (s step) after(have *int64) condition {
	switch {
	case have == nil && (s.sequence == 1 || s.order != FromOne):
		return condition{kind: absent}
	case have == nil:
		return condition{gap, 1}
	case *have >= s.sequence:
		return condition{kind: finished}
	case s.order == Increasing:
		return condition{less, s.sequence}
	case *have == s.sequence-1:
		return condition{equal, *have}
	}
	return condition{gap, *have + 1}
}

// advance applies a step, unless it was applied before.
func (f *Fence) advance(ctx context.Context, s step) (Outcome, error) {
	if err := f.checkKey(s.key); err != nil {
		return Unknown, err
	}
	if s.sequence < 1 {
		return Unknown, fmt.Errorf("inbox: event %d of %s %v: numbers begin at 1; use Once for events without numbers", s.sequence, f.table, s.key)
	}
	cond, lost := s.first(), false // lost: an attempt without a response may have been applied
	for attempts := 1; ; attempts++ {
		applied, have, err := f.try(ctx, s, cond)
		if applied {
			return Applied, nil
		}
		failed := err
		if err != nil && !invalid(err) {
			lost = true
			// The read carries out a round that was decided only.
			have, err = f.last(ctx, s.key)
		}
		if invalid(err) {
			return Unknown, f.refused(s, err)
		}
		next := cond
		if err == nil {
			next = s.after(have)
		}
		switch {
		case next.kind == finished && lost:
			return Applied, nil
		case next.kind == finished:
			return Duplicate, nil
		case next.kind == gap:
			return Unknown, &GapError{Table: f.table.String(), Key: slices.Clone(s.key), Want: next.value, Sequence: s.sequence}
		case failed == nil && next == cond && len(s.entries) > 0:
			return Unknown, fmt.Errorf("inbox: event %d of %s %v: %w", s.sequence, f.table, s.key, ErrCondition)
		}
		if attempts == maxAttempts {
			return Unknown, fmt.Errorf("inbox: event %d of %s %v: outcome unknown after %d attempts; deliver it again: %w", s.sequence, f.table, s.key, attempts, errors.Join(failed, err))
		}
		if failed != nil {
			if err := pause(ctx, attempts); err != nil {
				return Unknown, fmt.Errorf("inbox: event %d of %s %v: outcome unknown; deliver it again: %w", s.sequence, f.table, s.key, errors.Join(err, failed))
			}
		}
		cond = next
	}
}

// refused returns the error for a statement that the database cannot execute.
func (f *Fence) refused(s step, err error) error {
	if c, ok := code(err); ok && c == gocql.ErrCodeInvalid && len(s.entries) > 0 {
		return fmt.Errorf("inbox: event %d of %s %v is refused: %w; correct the statements of the effect: they may write only the partition of its key in %s", s.sequence, f.table, s.key, err, f.table)
	}
	return fmt.Errorf("inbox: event %d of %s %v is refused: %w", s.sequence, f.table, s.key, err)
}

// try executes a step under a condition. If it is not applied, have is the mark, nil if
// there is none.
func (f *Fence) try(ctx context.Context, s step, cond condition) (applied bool, have *int64, err error) {
	stmt, want := f.equal, &cond.value
	switch cond.kind {
	case absent:
		want = nil // null equals null in a condition
	case less:
		stmt = f.less
	}
	// Clients' write times have no effect on conditional statements.
	b := f.session.NewBatch(gocql.LoggedBatch).WithContext(ctx).RetryPolicy(never{}).SerialConsistency(serial(f.cfg.LocalSerial)).DefaultTimestamp(false)
	b.Query(stmt, slices.Concat([]any{s.sequence}, s.key, []any{want})...)
	b.Entries = append(b.Entries, s.entries...)
	row := map[string]any{f.cfg.Column: &have}
	applied, iter, err := f.session.MapExecuteBatchCAS(b, row)
	if err != nil {
		return false, nil, err
	}
	// Cassandra returns no columns if it found no row, and then there is no mark. The mark
	// of a later read would be another one than that of the condition.
	return applied, have, iter.Close()
}

// last reads the mark of a partition, nil if there is none.
func (f *Fence) last(ctx context.Context, key Key) (have *int64, err error) {
	level := gocql.Consistency(serial(f.cfg.LocalSerial))
	row := map[string]any{f.cfg.Column: &have}
	iter := f.session.Query(f.read, key...).WithContext(ctx).Consistency(level).Idempotent(true).Iter()
	iter.MapScan(row)
	return have, iter.Close()
}
