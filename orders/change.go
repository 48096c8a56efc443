package orders

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/guard"
)

// MaxVersion is the version up to which an order may be updated. It bounds the
// order's partition of the outbox; confirming, shipping and cancelling stay possible.
const MaxVersion = 1000

// edit is a change that is asked for.
type edit struct {
	kind Change
	// request is what the hash of an Idempotency-Key covers.
	request any
	// apply makes the change, all but what every change makes.
	apply func(o *Order, at time.Time) error
}

// change decides a change of an order and applies it.
//
// Errors are ErrNotFound, *ConflictError, *PreconditionError, *KeyReuseError,
// *InvalidError of apply, *OverloadedError and *UnavailableError.
func (s *Service) change(ctx context.Context, id gocql.UUID, c edit, opts WriteOptions) (Result, error) {
	_, leave, err := s.guard.Enter(ctx, 1)
	if err != nil {
		return Result{}, err
	}
	defer leave()
	ctx, cancel := s.detach(ctx)
	defer cancel()

	me := s.newIdentity(id)
	if opts.IdempotencyKey != "" {
		// A key must not be spent on an order that is not there.
		o, err := s.get(ctx, id)
		if err != nil {
			return Result{}, err
		}
		me.base = o.Version
		if me, err = s.claim(ctx, opts.ownKey(), c.kind.operation(), c.request, me); err != nil {
			return Result{}, err
		}
	}
	o, err := s.decide(ctx, c, me, opts)
	if err != nil {
		return Result{}, err
	}
	return Result{Order: o, Replayed: me.retried}, nil
}

// decide puts the event at the next place of the outbox, where a conditional
// insert lets one writer win, and then applies it to the order.
//
// Each round begins by reading the last event at SERIAL. That settles the round
// before: a conditional insert whose answer was lost, ours or another's, is
// completed by the read if it was decided. Should ours be decided after the read,
// then the next insert loses to it, and the read after that finds it.
func (s *Service) decide(ctx context.Context, c edit, me identity, opts WriteOptions) (Order, error) {
	unknown := me.retried
	keyed := opts.IdempotencyKey != ""
	for b := s.newBudget(ctx); ; {
		head, mine, err := s.look(ctx, &me, keyed || unknown)
		switch {
		case errors.Is(err, ErrNotFound):
			return Order{}, err
		case err != nil:
			s.metrics.attempt(stepSettle, fateOf(err))
			if errors.Is(err, guard.ErrOpen) && !unknown || !b.Pause() {
				return Order{}, s.unavailable(ctx, me.orderID, unknown, err)
			}
			continue
		case mine != nil:
			return *mine, nil // ours was decided
		}
		// What is refused from here on is refused for good: an insert of ours
		// whose answer was lost was for a place that is taken now, or was sent
		// after these same checks.
		o, err := c.next(head, me, opts)
		if err != nil {
			return Order{}, err
		}
		e, err := o.event(c.kind.eventType(), opts.headers())
		if err != nil {
			return Order{}, err
		}
		applied, err := s.store.appendEvent(ctx, e)
		f := fateOf(err)
		s.metrics.attempt(stepAppend, f)
		switch f {
		case fateDone:
			if applied {
				s.committed(ctx, &o)
				s.applyDecided(ctx, &o)
				return o, nil
			}
			s.metrics.lostRaces.Inc()
			if b.Left() > 0 {
				continue // somebody was first: look at what they did
			}
			err = errCrowded
		case fateUnknown:
			unknown = true
		case fateRefused, fateInvalid:
			if !unknown {
				return Order{}, s.unavailable(ctx, me.orderID, false, err)
			}
		}
		if !b.Pause() {
			return s.lastLook(ctx, c, me, opts, unknown, err)
		}
	}
}

// errCrowded ends a change that others were always faster than.
var errCrowded = errors.New("others have changed the order each time")

// look returns the order as it is and, if the change of me is among its events,
// the order as that change left it. search says that it may be an event before
// the last one.
func (s *Service) look(ctx context.Context, me *identity, search bool) (head Order, mine *Order, err error) {
	head, err = s.load(ctx, me.orderID, s.cfg.SerialConsistency, repairNow)
	switch {
	case err != nil:
		return Order{}, nil, err
	case head.EventID == me.eventID:
		return head, &head, nil
	case search && head.Version > me.base:
		e, ok, err := s.store.find(ctx, me.orderID, me.eventID, me.base)
		if err != nil {
			return Order{}, nil, err
		}
		if ok {
			o, err := fromEvent(&e)
			return head, &o, err
		}
	}
	// All places up to here are taken by others.
	me.base = head.Version
	return head, nil, nil
}

// lastLook settles a change whose time is up, if the database lets it.
func (s *Service) lastLook(ctx context.Context, c edit, me identity, opts WriteOptions, unknown bool, cause error) (Order, error) {
	base := me.base
	head, mine, err := s.look(ctx, &me, true)
	switch {
	case err != nil:
		return Order{}, s.unavailable(ctx, me.orderID, unknown, cause)
	case mine != nil:
		return *mine, nil
	case head.Version > base: // the place of the last attempt is another's
		if _, err := c.next(head, me, opts); err != nil {
			return Order{}, err
		}
		// Another request with the same key may still be at it.
		return Order{}, s.unavailable(ctx, me.orderID, me.retried, cause)
	}
	return Order{}, s.unavailable(ctx, me.orderID, unknown, cause)
}

// next returns the order as c leaves head, or why c is refused.
func (c *edit) next(head Order, me identity, opts WriteOptions) (Order, error) {
	if opts.IfVersion != nil && !slices.Contains(opts.IfVersion, head.Version) {
		return Order{}, &PreconditionError{Order: head}
	}
	to, refused := head.allows(c.kind)
	if refused != nil {
		return Order{}, refused
	}
	o := head
	if err := c.apply(&o, me.createdAt); err != nil {
		return Order{}, err
	}
	o.Version++
	o.Status = to
	o.EventID = me.eventID
	o.UpdatedAt = me.createdAt
	return o, nil
}

// allows returns the status to which c leads from o, or why c is refused.
func (o *Order) allows(c Change) (Status, *ConflictError) {
	to, ok := o.Status.after(c)
	if !ok || c == ChangeUpdate && o.Version >= MaxVersion {
		return "", &ConflictError{Order: *o, Change: c}
	}
	return to, nil
}

// applyDecided applies an event of ours to the order. It is stored whatever
// becomes of this: who reads the order next applies it.
func (s *Service) applyDecided(ctx context.Context, o *Order) {
	err := s.store.apply(ctx, o)
	s.metrics.attempt(stepApply, fateOf(err))
	if err != nil {
		s.log.WarnContext(ctx, "order is behind its outbox until it is read", "aggregate_id", o.ID, "event_id", o.EventID, "err", err)
	}
}
