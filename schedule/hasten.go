package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
)

// Hasten makes m, as it was read, due at now: the scheduler hands it to the outbox
// like any other whose time has come, once, whoever else releases or cancels it.
// After nil m is as it is stored.
//
// One that is due already is left alone, which is no error. ErrReleased,
// ErrCancelled or ErrNotFound say that it waits no more; after any other error it
// may be due or wait as before, and Hasten may be called again.
func (s *Store) Hasten(ctx context.Context, m *Message, now time.Time) error {
	now = now.UTC().Truncate(time.Millisecond)
	if err := m.waits(); err != nil || !m.DeliverAt.After(now) {
		return err
	}
	// Its slot goes before: a message that is due and has none would be found when
	// it was due at first. A slot without its message costs a look.
	early := slot{bucket: bucketOf(now), at: now, id: m.ID, topic: m.Topic}
	if err := s.putSlot(ctx, early); err != nil {
		return err
	}
	applied, err := s.change(ctx, hastenRow, now.UnixMilli(), now.UnixMilli(), m.ID, m.DeliverAt.UnixMilli())
	if err == nil && applied {
		s.dropSlotOf(ctx, m)
		m.DeliverAt, m.ChangedAt = now, now
		return nil
	}
	// What is decided and left undone is completed by looking.
	got, readErr := s.read(ctx, m.ID, s.serial)
	switch {
	case errors.Is(readErr, ErrNotFound) && err == nil:
		_ = s.dropSlot(ctx, early)
		return readErr
	case readErr != nil:
		return fmt.Errorf("hasten message %s: %w", m.ID, errors.Join(err, readErr))
	}
	if waits := got.waits(); waits != nil {
		_ = s.dropSlot(ctx, early) // what stays of it is removed when it is old
		return waits
	}
	switch due := !got.DeliverAt.After(now); {
	case due:
		s.dropSlotOf(ctx, m)
	case err != nil:
		return fmt.Errorf("hasten message %s: %w", m.ID, err)
	}
	*m = got
	return s.Hasten(ctx, m, now) // which has nothing left to do, unless somebody else's clock is ahead
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

// putSlot makes a message be looked at, at another time than its own.
func (s *Store) putSlot(ctx context.Context, x slot) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	b := s.session.Batch(gocql.LoggedBatch).WithContext(ctx).RetryPolicy(cqlcode.NeverAgain{}).DefaultTimestamp(false)
	b.SetConsistency(s.cons)
	b.Query(putSlot, x.bucket, shardOf(x.id), x.at.UnixMilli(), x.id, x.topic)
	b.Query(putBucket, monthOf(x.bucket), x.bucket)
	if err := b.Exec(); err != nil {
		return fmt.Errorf("put a slot of message %s: %w", x.id, err)
	}
	return nil
}
