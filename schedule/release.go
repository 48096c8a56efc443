package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/outbox"
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

const (
	// releaseMost is the maximum number of messages in one statement.
	releaseMost = 64
	// releaseBytes is the size of payloads at which a batch is full: ScyllaDB logs a
	// warning for batches from 128 KiB and rejects those from 1 MiB.
	releaseBytes = 64 << 10
)

// dueMessage is a message with the slot by which it was found.
type dueMessage struct {
	slot slot
	Message
}

// release moves due messages, whose slots are in one partition, at most
// releaseMost, from the schedule to the outbox. It can be interrupted at any point
// and repeated by any instance:
//
//  1. a lightweight transaction sets the states released and the write time of the
//     outbox rows; it loses to an earlier cancellation and refuses a later one
//  2. the outbox rows are written with that time
//  3. the messages are removed, and then the slots that refer to them
//
// They share the statements of all steps. One that must be decided alone, because it
// has another state or a transaction has failed, delays no others. ended is called
// once for each slot, from any goroutine, with its error.
func (s *Scheduler) release(ctx context.Context, slots []slot, ended func(slot, error)) {
	found, readErr := s.store.readAll(ctx, slots)
	var same, others []*dueMessage
	for _, x := range slots {
		d := &dueMessage{x, found[x.id]}
		if len(slots) > 1 && readErr == nil && d.isWaiting() && !d.DeliverAt.After(s.clock.Now()) {
			same = append(same, d)
		} else {
			others = append(others, d)
		}
	}
	same, undecided := s.decideAll(ctx, same)
	var all sync.WaitGroup
	for _, batch := range batches(same) {
		all.Go(func() { s.complete(ctx, batch, ended) })
	}
	for _, d := range append(others, undecided...) {
		all.Go(func() {
			err := readErr
			if readErr != nil && len(slots) > 1 { // another message may be the unreadable one
				if d.Message, err = s.store.readRow(ctx, d.slot.id, gocql.Quorum); errors.Is(err, ErrNotFound) {
					err = nil
				}
			}
			hand := false
			if err == nil {
				hand, err = s.decide(ctx, d, s.clock.Now())
			}
			if !hand {
				ended(d.slot, err)
				return
			}
			s.complete(ctx, []*dueMessage{d}, ended)
		})
	}
	all.Wait()
}

// isWaiting reports whether the slot contains the state of the message, which was
// waiting when the slot was read.
func (d *dueMessage) isWaiting() bool {
	return d.ID != (gocql.UUID{}) && d.State == "" && !d.slot.changed && d.slot.at.Equal(d.DeliverAt)
}

// decideAll performs step 1 for waiting messages of one partition, by one
// transaction. If some are found to be no longer waiting, a second one is for the
// others. It returns the released messages, and the messages of which each must be decided
// alone.
func (s *Scheduler) decideAll(ctx context.Context, ds []*dueMessage) (released, undecided []*dueMessage) {
	for attempt := 1; len(ds) > 0 && attempt <= 2; attempt++ {
		now := s.clock.Now()
		applied, left, err := s.store.releaseAll(ctx, ds, now)
		if err != nil {
			break
		}
		if applied {
			for _, d := range ds {
				d.State, d.ChangedAt, d.releaseAt = Released, now, now.UnixMicro()
			}
			return ds, undecided
		}
		for _, d := range ds {
			if !slices.Contains(left, d) {
				d.slot.changed = true // its state is read
				undecided = append(undecided, d)
			}
		}
		ds = left
	}
	return nil, append(undecided, ds...)
}

// batches divides messages into batches of one statement: each has at least one.
func batches(ds []*dueMessage) (out [][]*dueMessage) {
	for size, i := 0, 0; i < len(ds); i++ {
		if n := len(ds[i].Payload); i == 0 || size+n > releaseBytes {
			out, size = append(out, nil), 0
		}
		size += len(ds[i].Payload)
		out[len(out)-1] = append(out[len(out)-1], ds[i])
	}
	return out
}

// decide performs step 1 for one message at now. True means that the message is
// released, and its row must be written. False without an error means that nothing
// is left to do, or that another slot or scheduler does it.
func (s *Scheduler) decide(ctx context.Context, d *dueMessage, now time.Time) (bool, error) {
	m := &d.Message
	if m.ID == (gocql.UUID{}) {
		return false, s.dropOld(ctx, d.slot) // the other half of its batch may still become visible
	}
	if m.State == Cancelled {
		return false, s.store.endSlots(ctx, now, append(m.slots(), d.slot)...)
	}
	if d.isWaiting() {
		m.State = Waiting
	} else if err := s.store.readState(ctx, m, s.store.cons); errors.Is(err, ErrNotFound) {
		return false, s.dropOld(ctx, d.slot) // the slot with its state is removed, or not visible yet
	} else if err != nil {
		return false, err
	}
	if m.State == Waiting {
		if m.DeliverAt.After(s.clock.Now()) {
			return false, s.dropOld(ctx, d.slot) // an unfinished or failed Hasten; there is another slot at its time
		}
		dueAt := m.DeliverAt
		won, err := s.store.release(ctx, m, now)
		if err != nil {
			return false, err
		}
		if won {
			m.State, m.releaseAt = Released, now.UnixMicro()
		} else if err = s.store.readState(ctx, m, s.store.serial); errors.Is(err, ErrNotFound) {
			return false, s.dropOld(ctx, d.slot) // another scheduler has released it, and drops its slot; or the transaction's replicas lack it
		} else if err != nil {
			return false, err
		} else if m.State == Waiting && !m.DeliverAt.Equal(dueAt) {
			return false, nil // it was hastened, and has a slot at its new time
		}
	}
	switch m.State {
	case Cancelled:
		if err := s.store.endCancelled(ctx, m, m.ChangedAt, now); err != nil || d.slot.at.Equal(m.slot().at) {
			return false, err
		}
		return false, s.store.dropSlots(ctx, d.slot)
	case Released:
		return true, nil
	default:
		return false, fmt.Errorf("message %s is %q although its release was refused", m.ID, m.State)
	}
}

// dropOld removes a slot to which no message can belong any more. While a replica is away that
// may have the message, the slot stays, and is read again by the next sweep.
func (s *Scheduler) dropOld(ctx context.Context, x slot) error {
	if _, ok := closes(x.at, s.clock.Now()); !ok {
		return nil
	}
	all := s.store.everywhere()
	m, err := all.readRow(ctx, x.id, all.cons)
	if err == nil && m.State != Cancelled && m.DeliverAt.UnixMilli() != x.at.UnixMilli() {
		err = all.readState(ctx, &m, all.cons)
	}
	if err != nil && !errors.Is(err, ErrNotFound) || err == nil && m.State != Cancelled && m.DeliverAt.UnixMilli() == x.at.UnixMilli() {
		s.cfg.Logger.DebugContext(ctx, "a slot without a message stays", "message", x.id, "at", x.at, "err", err)
		return nil
	}
	return s.store.dropSlots(ctx, x)
}

// complete performs steps 2 and 3 for released messages.
func (s *Scheduler) complete(ctx context.Context, ds []*dueMessage, ended func(slot, error)) {
	ds = together(ds, ended, func(ds []*dueMessage) error { return s.handAll(ctx, ds) }, func(d *dueMessage) (bool, error) { return s.hand(ctx, d) })
	for _, d := range ds {
		s.cfg.Committed(outbox.IDFromUUID(d.ID))
		s.metrics.released.Inc()
		s.metrics.late.Observe(s.clock.Now().Sub(d.DeliverAt).Seconds())
	}
	ds = together(ds, ended, func(ds []*dueMessage) error { return s.store.forget(ctx, s.clock.Now(), ds...) }, nil)
	for _, d := range together(ds, ended, func(ds []*dueMessage) error { return s.store.endSlots(ctx, s.clock.Now(), slotsTo(ds)...) }, nil) {
		ended(d.slot, nil)
	}
}

// together calls all with several messages. If that fails, or for a single one,
// it calls one for each concurrently, so that a row that cannot be written
// delays no others; nil calls all. It returns the messages that succeeded, and
// calls ended for the others.
func together(ds []*dueMessage, ended func(slot, error), all func([]*dueMessage) error, one func(*dueMessage) (bool, error)) []*dueMessage {
	if len(ds) > 1 && all(ds) == nil {
		return ds
	}
	if one == nil {
		one = func(d *dueMessage) (bool, error) { return true, all([]*dueMessage{d}) }
	}
	var each sync.WaitGroup
	ok := make([]bool, len(ds))
	for i, d := range ds {
		each.Go(func() {
			done, err := one(d)
			if ok[i] = done && err == nil; !ok[i] {
				ended(d.slot, err)
			}
		})
	}
	each.Wait()
	var out []*dueMessage
	for i, d := range ds {
		if ok[i] {
			out = append(out, d)
		}
	}
	return out
}

// slotsTo returns the slots of messages, and those by which they were found.
func slotsTo(ds []*dueMessage) []slot {
	out := make([]slot, 0, len(ds))
	for _, d := range ds {
		out = append(out, d.Message.slots()...)
		if !d.slot.at.Equal(d.DeliverAt) && !d.slot.at.Equal(d.storedFor) {
			out = append(out, d.slot)
		}
	}
	return out
}

var errApart = errors.New("their rows need different write times")

// handAll writes the outbox rows of messages that were just released, in one
// attempt.
func (s *Scheduler) handAll(ctx context.Context, ds []*dueMessage) error {
	for _, d := range ds {
		if d.releaseAt != ds[0].releaseAt || s.needsNewTime(&d.Message) {
			return errApart
		}
	}
	return s.store.hand(ctx, false, handTimeout, ds...)
}

// needsNewTime reports whether the outbox row needs a new write time.
func (s *Scheduler) needsNewTime(m *Message) bool {
	return s.clock.Now().Sub(time.UnixMicro(m.releaseAt)) > handFresh
}

// hand writes the outbox row until it is known to be stored. False without an
// error means that this call must not write it: message and slot stay and are
// read again.
//
// A row whose write time is older than handFresh gets a new one. If the write
// of a slow or failed scheduler arrives as well, the relay publishes one of the
// two rows: both have the id of the message.
func (s *Scheduler) hand(ctx context.Context, d *dueMessage) (bool, error) {
	serverTime := false
	for n := 1; ; n++ {
		if n < handAttempts && s.needsNewTime(&d.Message) {
			if stop, there, err := s.renew(ctx, &d.Message); stop {
				return there, err
			}
			continue // the renewal may have taken long itself
		}
		err := s.store.hand(ctx, serverTime, min(handTimeout<<(n-1), handFresh), d)
		switch fate := cqlcode.ClassifyFate(err); {
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
	if s.clock.Now().Sub(time.UnixMicro(m.releaseAt)) > stale {
		if there, err = s.store.isInOutbox(ctx, m.ID); err != nil || there {
			return true, there, err
		}
	}
	at := s.clock.Now()
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
