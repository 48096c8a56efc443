package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
)

// stale is how old the write time of an outbox row may be when it is written
// again: well below the relay's confidence window, which a row with an older
// time would come too late for.
const stale = 30 * time.Second

const (
	handAttempts = 5
	handPause    = 50 * time.Millisecond
)

// release takes one message from waiting to the outbox. It may be interrupted
// at any point and done again, by anyone:
//
//  1. a lightweight transaction makes it released, with the outbox row's write
//     time; a cancellation that was first has won, and one that comes later is refused
//  2. the outbox row is written with that time
//  3. the message is removed, and then its slot, by which it is found
func (s *Scheduler) release(ctx context.Context, x slot) error {
	m, err := s.store.Read(ctx, x.id)
	if errors.Is(err, ErrNotFound) {
		if s.cfg.Now().Sub(x.at) < CloseAfter {
			return nil // the other half of its batch may still come
		}
		return s.store.dropSlot(ctx, x)
	}
	if err != nil {
		return err
	}
	if m.State == Waiting {
		if m.DeliverAt.After(s.cfg.Now()) {
			// Somebody hastens it and is not done, or gave up on it; there is another slot at its time.
			if s.cfg.Now().Sub(x.at) < CloseAfter {
				return nil
			}
			return s.store.dropSlot(ctx, x)
		}
		at, dueAt := s.cfg.Now(), m.DeliverAt
		won, err := s.store.release(ctx, &m, at)
		if err != nil {
			return err
		}
		if won {
			m.State, m.releaseAt = Released, at.UnixMicro()
		} else if m, err = s.store.read(ctx, x.id, s.store.serial); errors.Is(err, ErrNotFound) {
			return s.store.dropSlot(ctx, x) // somebody else was first, and is done
		} else if err != nil {
			return err
		} else if m.State == Waiting && !m.DeliverAt.Equal(dueAt) {
			return nil // it was hastened, and has a slot at its new time
		}
	}
	switch m.State {
	case Cancelled:
		return s.store.dropSlot(ctx, x)
	case Released:
	default:
		return fmt.Errorf("message %s is %q although its release was refused", m.ID, m.State)
	}
	if handed, err := s.hand(ctx, &m); err != nil || !handed {
		return err
	}
	s.cfg.Committed(m.ID)
	s.metrics.released.Inc()
	s.metrics.late.Observe(s.cfg.Now().Sub(m.DeliverAt).Seconds())
	if err := s.store.forget(ctx, m.ID); err != nil {
		return err
	}
	if !m.DeliverAt.Equal(x.at) {
		s.store.dropSlotOf(ctx, &m) // it was found by that of the time from which it was hastened
	}
	return s.store.dropSlot(ctx, x)
}

// hand writes the outbox row until it is known to be stored. False without an
// error says that it is not for this call to write: the message stays, and its
// slot, and is looked at again.
func (s *Scheduler) hand(ctx context.Context, m *Message) (bool, error) {
	if s.cfg.Now().Sub(time.UnixMicro(m.releaseAt)) > stale {
		// Somebody was interrupted. What is there was written in time.
		there, err := s.store.handed(ctx, m.ID)
		if err != nil || there {
			return there, err
		}
		at := s.cfg.Now()
		won, err := s.store.rerelease(ctx, m, at)
		if err != nil || !won {
			// Refused, another one has moved the time: a scheduler that is about to
			// write the row, or one that will not, or an attempt of ours whose answer
			// was lost. So nothing says yet that the row will be there.
			return false, err
		}
		m.releaseAt = at.UnixMicro()
	}
	serverTime := false
	for n := 1; ; n++ {
		err := s.store.hand(ctx, m, serverTime)
		switch fate := cqlcode.FateOf(err); {
		case fate == cqlcode.Done:
			return true, nil
		case fate == cqlcode.Invalid && !serverTime:
			// ScyllaDB refuses times before the current CDC generation, and those
			// too far ahead of its clock.
			serverTime = true
		case fate == cqlcode.Invalid || n == handAttempts:
			return false, err
		default:
			time.Sleep(handPause << n)
		}
	}
}
