package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
)

// Hasten makes m, as read before, due at now: the scheduler writes it to the
// outbox like every due message, once, even if others release or cancel it
// concurrently. After nil m has the stored values.
//
// A message that is already due is unchanged, without an error. ErrReleased,
// ErrCancelled or ErrNotFound mean that it is no longer waiting. After any
// other error it may be due or waiting, and Hasten can be called again.
func (s *Store) Hasten(ctx context.Context, m *Message, now time.Time) error {
	now = now.UTC().Truncate(time.Millisecond)
	if err := m.waits(); err != nil || !m.DeliverAt.After(now) {
		return err
	}
	// The slot is written first: a due message without a slot would be found only
	// at its original time. A slot without its message costs one read.
	early := m.slotAt(now)
	if err := s.putSlot(ctx, early); err != nil {
		return err
	}
	x := m.slot()
	applied, err := s.change(ctx, hastenSlot, slices.Concat([]any{now.UnixMilli(), now.UnixMilli()}, x.key(), []any{m.Topic, m.dueAt()})...)
	if err == nil && applied {
		s.dropEarlySlot(ctx, m)
		m.storedFor, m.DeliverAt, m.ChangedAt = x.at, now, now
		return nil
	}
	// The read completes a decided conditional statement.
	got, readErr := s.read(ctx, m.ID, s.serial)
	switch {
	case errors.Is(readErr, ErrNotFound) && err == nil:
		_ = s.dropSlots(ctx, early)
		return readErr
	case readErr != nil:
		return fmt.Errorf("hasten message %s: %w", m.ID, errors.Join(err, readErr))
	}
	if waits := got.waits(); waits != nil {
		_ = s.dropSlots(ctx, early) // leftovers are removed by their TTL
		return waits
	}
	switch due := !got.DeliverAt.After(now); {
	case due && !got.DeliverAt.Equal(m.DeliverAt):
		s.dropEarlySlot(ctx, m)
	case !due && err != nil:
		return fmt.Errorf("hasten message %s: %w", m.ID, err)
	}
	*m = got
	return s.Hasten(ctx, m, now) // the retry finds it due, unless the clock of another instance is ahead
}

// waits is nil for a message that waits, else why it does not.
func (m *Message) waits() error {
	switch m.State {
	case Cancelled:
		return fmt.Errorf("message %s: %w", m.ID, ErrCancelled)
	case Released:
		return fmt.Errorf("message %s: %w", m.ID, ErrReleased)
	default:
		return nil
	}
}

// putSlot adds a slot for a message at a time other than its own.
func (s *Store) putSlot(ctx context.Context, x slot) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	b := s.session.Batch(gocql.LoggedBatch).WithContext(ctx).RetryPolicy(cqlcode.NeverAgain{}).DefaultTimestamp(false)
	b.SetConsistency(s.cons)
	addSlot(b, x)
	if err := b.Exec(); err != nil {
		return fmt.Errorf("put a slot of message %s: %w", x.id, err)
	}
	return nil
}
