package orders

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// repair determines when load completes an order that lacks its event.
type repair bool

const (
	// repairOld: once it is old enough that its writer must be dead. A reader
	// that cannot repair now still has an order to return.
	repairOld repair = false
	// repairNow: before anything is built on it; a failure is an error.
	repairNow repair = true
)

// readerPatience limits the time that a reader spends on writing an event once more.
const readerPatience = time.Second

// load reads an order, its row and its last event together, and completes a change that a failed
// writer left incomplete. It returns ErrNotFound if neither the order nor the event exists.
func (s *Service) load(ctx context.Context, id gocql.UUID, when repair) (Order, error) {
	o, e, err := s.read(ctx, id)
	switch {
	case err != nil:
		return Order{}, err
	case o == nil && e == nil:
		return Order{}, ErrNotFound
	case e != nil && (o == nil || o.Version < e.Sequence):
		return s.rollForward(ctx, e, when)
	case e != nil || o.Version > 1:
		return *o, nil
	}
	age := s.cfg.Clock.Now().Sub(o.CreatedAt)
	if age > s.cfg.repairWindow() || when == repairOld && age < s.cfg.RepairAfter {
		return *o, nil
	}
	if err := s.completeEvent(ctx, o); err != nil {
		if when == repairNow {
			return Order{}, err
		}
		s.log.WarnContext(ctx, "order lacks its event", "aggregate_id", id, "err", err)
	}
	return *o, nil
}

// read reads the row of the order and its last event. Missing ones are nil.
func (s *Service) read(ctx context.Context, id gocql.UUID) (row *Order, last *outbox.Event, err error) {
	var rowErr, lastErr error
	var wg sync.WaitGroup
	wg.Go(func() { row, rowErr = s.store.order(ctx, id) })
	last, lastErr = s.store.lastEvent(ctx, selectHead, id.String())
	wg.Wait()
	return row, last, cmp.Or(lastErr, rowErr)
}

// rollForward writes the last event again and applies it to the row of the
// order. The event is decided, so it is the state of the order even if these
// writes fail.
//
// The writer of an order with a stale row never learned of its event. The read
// that found the event may have completed the conditional insert, possibly long
// after it was sent. The row of the CDC log then has the old time, which the
// relay has already passed. Writing the same event now creates a row that the
// relay reads. This write precedes that of the order's row, whose staleness
// marks the repair as pending.
func (s *Service) rollForward(ctx context.Context, e *outbox.Event, when repair) (Order, error) {
	o, err := fromEvent(e)
	if err != nil {
		return Order{}, err
	}
	settling, cancel := ctx, func() {}
	if when == repairOld {
		settling, cancel = context.WithTimeout(ctx, readerPatience)
	}
	defer cancel()
	err = s.appender.Settle(settling, *e)
	switch {
	case err != nil && when == repairNow:
		return Order{}, err
	case err != nil:
		s.log.WarnContext(ctx, "failed to rewrite the last event of an order", "aggregate_id", o.ID, "event_id", e.ID, "err", err)
		return o, nil
	}
	s.afterCommit(ctx, &o)
	if s.applyDecided(ctx, &o) {
		s.rolledForward(ctx, &o)
	}
	return o, nil
}

func (s *Service) rolledForward(ctx context.Context, o *Order) {
	s.metrics.repairs.WithLabelValues(repairOrder).Inc()
	s.log.InfoContext(ctx, "order rolled forward from the outbox", "aggregate_id", o.ID, "event_id", o.EventID, "version", o.Version)
}

// completeEvent writes the missing event of an order: one half of a batch whose
// other half was not applied, for example across a change of the CDC
// generation, which the batchlog cannot replay. Writing it twice is harmless.
func (s *Service) completeEvent(ctx context.Context, o *Order) error {
	e, err := o.event(EventCreated, nil)
	if err != nil {
		return err
	}
	if schema, err := s.findSchema(ctx, &e, true); err == nil { // its writer has checked it
		e.Headers = registry.WithSchema(nil, schema)
	}
	err = s.store.create(ctx, o, e, 0)
	s.metrics.attempt(stepBatch, classifyFate(err))
	if err != nil {
		return err
	}
	s.afterCommit(ctx, o)
	s.metrics.repairs.WithLabelValues(repairEvent).Inc()
	s.log.InfoContext(ctx, "event of an order completed", "aggregate_id", o.ID, "event_id", e.ID)
	return nil
}
