package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
)

// handFresh is the maximum age of the write time of an outbox row when its
// write begins. The relay's tail reader finds rows that become visible up to
// half of relay.Config.TailOverlap after their write time (2 s by default); an
// older row waits for the sweep reader, for the whole confidence window.
const handFresh = time.Second

// stale is how long the relay certainly remembers the id of a published event:
// well below its confidence window. Until then a row is rewritten without
// reading it first, because it may exist without its row in the CDC log.
const stale = 30 * time.Second

// handTimeout bounds the first attempt to write an outbox row; each retry has
// twice as much, up to handFresh, since its write time ages during an attempt.
const handTimeout = 100 * time.Millisecond

const (
	handAttempts = 5
	handPause    = 50 * time.Millisecond
)

// release moves one message from the schedule to the outbox. It can be
// interrupted at any point and repeated by any instance:
//
//  1. a lightweight transaction sets the state released and the write time of the
//     outbox row; it loses to an earlier cancellation and refuses a later one
//  2. the outbox row is written with that time
//  3. the message is removed, and then the slot that refers to it
func (s *Scheduler) release(ctx context.Context, x slot) error {
	m, err := s.store.Read(ctx, x.id)
	if errors.Is(err, ErrNotFound) {
		if s.cfg.Now().Sub(x.at) < CloseAfter {
			return nil // the other half of its batch may still become visible
		}
		return s.store.dropSlot(ctx, x)
	}
	if err != nil {
		return err
	}
	if m.State == Waiting {
		if m.DeliverAt.After(s.cfg.Now()) {
			// An unfinished or failed Hasten; there is another slot at its time.
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
			return s.store.dropSlot(ctx, x) // another scheduler has released it
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
// error means that this call must not write it: message and slot stay and are
// read again.
//
// A row whose write time is older than handFresh gets a new one. If the write
// of a slow or failed scheduler arrives as well, the relay publishes one of the
// two rows: both have the id of the message.
func (s *Scheduler) hand(ctx context.Context, m *Message) (bool, error) {
	serverTime := false
	for n := 1; ; n++ {
		if n < handAttempts && s.cfg.Now().Sub(time.UnixMicro(m.releaseAt)) > handFresh {
			if stop, there, err := s.renew(ctx, m); stop {
				return there, err
			}
			continue // the renewal may have taken long itself
		}
		err := s.store.hand(ctx, m, serverTime, min(handTimeout<<(n-1), handFresh))
		switch fate := cqlcode.FateOf(err); {
		case fate == cqlcode.Done:
			return true, nil
		case fate == cqlcode.Invalid && !serverTime:
			// ScyllaDB rejects times before the current CDC generation, and those too far
			// ahead of its clock.
			serverTime = true
		case fate == cqlcode.Invalid || n >= handAttempts: // a change of serverTime may be the last attempt
			return false, err
		default:
			time.Sleep(handPause << n)
		}
	}
}

// renew gives the outbox row of a released message a new write time. stop ends
// the hand-over with there and err. there reports that the row exists but is so
// old that the relay may have forgotten its publication; it must not be written
// again.
func (s *Scheduler) renew(ctx context.Context, m *Message) (stop, there bool, err error) {
	if s.cfg.Now().Sub(time.UnixMicro(m.releaseAt)) > stale {
		if there, err = s.store.handed(ctx, m.ID); err != nil || there {
			return true, there, err
		}
	}
	at := s.cfg.Now()
	won, err := s.store.rerelease(ctx, m, at)
	if err != nil || !won {
		// Refused: another caller has moved the time: a scheduler that is about to
		// write the row, a failed one, or an attempt of this one with a lost response.
		// It is unknown whether the row will be written.
		return true, false, err
	}
	m.releaseAt = at.UnixMicro()
	return false, false, nil
}
