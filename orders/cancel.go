package orders

import (
	"context"
	"errors"

	"github.com/gocql/gocql"
)

// Cancel cancels an order and stores its OrderCancelled event.
//
// Of any number of requests that cancel one order, one succeeds and the others
// get a *CancelledError; there is one event. Other errors are ErrNotFound,
// *InvalidError, *KeyReuseError and *UnavailableError; after the last with
// Unknown set, the same request with the same Idempotency-Key finds out.
func (s *Service) Cancel(ctx context.Context, id gocql.UUID, c Cancellation, opts WriteOptions) (Result, error) {
	if err := errors.Join(c.Validate(), validateKey(opts.IdempotencyKey)); err != nil {
		return Result{}, mergeInvalid(err)
	}
	ctx, cancel := s.detach(ctx)
	defer cancel()

	me := s.newIdentity(id)
	if opts.IdempotencyKey != "" {
		// A key must not be spent on an order that is not there.
		if _, err := s.Get(ctx, id); err != nil {
			return Result{}, err
		}
		var err error
		if me, err = s.claim(ctx, opts.IdempotencyKey, opCancel, newCancelRequest(id, c), me); err != nil {
			return Result{}, err
		}
	}
	o, err := s.decideCancel(ctx, c, me, opts)
	if err != nil {
		return Result{}, err
	}
	return Result{Order: o, Replayed: me.retried}, nil
}

// decideCancel puts the event at the next place of the outbox, where a
// conditional insert lets one writer win, and then applies it to the order.
//
// Each round begins by reading the last event at SERIAL. That settles the round
// before: a conditional insert whose answer was lost, ours or another's, is
// completed by the read if it was decided. Should ours be decided after the read,
// then the next insert loses to it, and the read after that finds it.
func (s *Service) decideCancel(ctx context.Context, c Cancellation, me identity, opts WriteOptions) (Order, error) {
	unknown := me.retried
	for b := s.newBudget(ctx); ; {
		o, err := s.load(ctx, me.orderID, s.cfg.SerialConsistency, repairNow)
		switch {
		case errors.Is(err, ErrNotFound):
			return Order{}, err
		case err != nil:
			s.metrics.attempt(stepSettle, fateOf(err))
			if !b.pause() {
				return Order{}, s.unavailable(me.orderID, unknown, err)
			}
			continue
		case o.EventID == me.eventID:
			return o, nil // ours was decided
		case o.Status == StatusCancelled:
			return Order{}, &CancelledError{Order: o}
		}
		o = o.cancelled(c, me)
		e, err := o.event(EventCancelled, opts.headers())
		if err != nil {
			return Order{}, err
		}
		applied, err := s.store.appendEvent(ctx, e)
		f := fateOf(err)
		s.metrics.attempt(stepAppend, f)
		switch f {
		case fateDone:
			if applied {
				s.cfg.Committed(o.ID)
				s.applyDecided(ctx, &o)
				return o, nil
			}
			s.metrics.lostRaces.Inc()
			continue // somebody was first: look at what they did
		case fateUnknown:
			unknown = true
		case fateRefused, fateInvalid:
			if !unknown {
				return Order{}, s.unavailable(me.orderID, false, err)
			}
		}
		if !b.pause() {
			return s.lastLook(ctx, me, unknown, err)
		}
	}
}

// lastLook settles a cancellation whose time is up, if the database lets it.
func (s *Service) lastLook(ctx context.Context, me identity, unknown bool, cause error) (Order, error) {
	o, err := s.load(ctx, me.orderID, s.cfg.SerialConsistency, repairNow)
	switch {
	case err == nil && o.EventID == me.eventID:
		return o, nil
	case err == nil && o.Status == StatusCancelled:
		return Order{}, &CancelledError{Order: o}
	}
	return Order{}, s.unavailable(me.orderID, unknown, cause)
}

// cancelled returns o as its cancellation leaves it.
func (o Order) cancelled(c Cancellation, me identity) Order {
	at := me.createdAt
	if c.CancelledAt != nil {
		at = millis(*c.CancelledAt)
	}
	o.Version++
	o.Status = StatusCancelled
	o.EventID = me.eventID
	o.CancelledAt = &at
	o.CreditNote = c.CreditNote
	o.CancelReason = c.Reason
	o.UpdatedAt = me.createdAt
	return o
}

// applyDecided applies an event of ours to the order. It is stored whatever
// becomes of this: who reads the order next applies it.
func (s *Service) applyDecided(ctx context.Context, o *Order) {
	err := s.store.apply(ctx, o)
	s.metrics.attempt(stepApply, fateOf(err))
	if err != nil {
		s.log.Warn("order is behind its outbox until it is read", "aggregate_id", o.ID, "event_id", o.EventID, "err", err)
	}
}
