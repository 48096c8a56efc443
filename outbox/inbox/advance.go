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
	case s.Sequence == 1:
		return condition{kind: absent}
	case s.order == Increasing:
		return condition{less, s.Sequence}
	}
	return condition{equal, s.Sequence - 1}
}

// after is the condition for a partition whose mark is have, nil if there is none.
func (s step) after(have *int64) condition {
	switch {
	case have == nil && (s.Sequence == 1 || s.order != FromOne):
		return condition{kind: absent}
	case have == nil:
		return condition{gap, 1}
	case *have >= s.Sequence:
		return condition{kind: finished}
	case s.order == Increasing:
		return condition{less, s.Sequence}
	case *have == s.Sequence-1:
		return condition{equal, *have}
	}
	return condition{gap, *have + 1}
}

// advance applies a step, unless it was applied before.
func (f *Fence) advance(ctx context.Context, s step) (Outcome, error) {
	if err := f.checkKey(s.Key); err != nil {
		return Unknown, err
	}
	if s.Sequence < 1 {
		return Unknown, fmt.Errorf("inbox: event %d of %s %v: numbers begin at 1; use Once for events without numbers", s.Sequence, f.table, s.Key)
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
			have, err = f.last(ctx, s.Key)
		}
		if attempt.Invalid(err) {
			return Unknown, f.refused(s, err)
		}
		next := cond
		if err == nil {
			next = s.after(have)
		}
		switch {
		case next.kind == finished:
			if err := f.checkID(ctx, s); err != nil {
				return Unknown, err
			}
			if lost {
				return Applied, nil
			}
			return Duplicate, nil
		case next.kind == gap:
			return Unknown, &GapError{Table: f.table.String(), Key: slices.Clone(s.Key), Want: next.value, Sequence: s.Sequence}
		case failed == nil && next == cond && len(s.entries) > 0:
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

// refused returns the error for a statement that the database cannot execute.
func (f *Fence) refused(s step, err error) error {
	if c, ok := attempt.Code(err); ok && c == gocql.ErrCodeInvalid && len(s.entries) > 0 {
		return fmt.Errorf("inbox: event %d of %s %v is refused: %w; correct the statements of the effect: they may write only the partition of its key in %s", s.Sequence, f.table, s.Key, err, f.table)
	}
	return fmt.Errorf("inbox: event %d of %s %v is refused: %w", s.Sequence, f.table, s.Key, err)
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
	b := f.session.NewBatch(gocql.LoggedBatch).WithContext(ctx).RetryPolicy(attempt.Never{}).SerialConsistency(attempt.Serial(f.cfg.LocalSerial)).DefaultTimestamp(false)
	set := []any{s.Sequence}
	if f.readID != "" {
		set = append(set, s.ID) // empty where it is unknown: the former one would be wrong
	}
	b.Query(stmt, slices.Concat(set, s.Key, []any{want})...)
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
	err = f.readMark(ctx, f.read, key, map[string]any{f.cfg.Column: &have})
	return have, err
}

// readMark reads the mark of a partition, and what was written with it, after a decided round.
func (f *Fence) readMark(ctx context.Context, stmt string, key Key, row map[string]any) error {
	level := gocql.Consistency(attempt.Serial(f.cfg.LocalSerial))
	iter := f.session.Query(stmt, key...).WithContext(ctx).Consistency(level).Idempotent(true).Iter()
	iter.MapScan(row)
	return iter.Close()
}

// checkID compares the id of a step whose number was applied with the one that was applied last,
// if both have the same number and both ids are known.
func (f *Fence) checkID(ctx context.Context, s step) error {
	if f.readID == "" || s.ID == "" {
		return nil
	}
	var have *int64
	var id *string
	if err := f.readMark(ctx, f.readID, s.Key, map[string]any{f.cfg.Column: &have, f.cfg.IDColumn: &id}); err != nil {
		return fmt.Errorf("inbox: read the id of the last applied event of %s %v: %w", f.table, s.Key, err)
	}
	if have == nil || id == nil || *have != s.Sequence || *id == "" || *id == s.ID {
		return nil
	}
	return &ConflictError{Table: f.table.String(), Event: s.Event, Applied: *id}
}
