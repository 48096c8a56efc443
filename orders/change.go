package orders

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/guard"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
)

// MaxVersion is the version up to which an order can be updated. It bounds the
// partition of the order in the outbox. Confirming, shipping and cancelling
// remain possible.
const MaxVersion = 1000

// edit is a requested change.
type edit struct {
	kind Change
	// request is hashed for the Idempotency-Key.
	request any
	// apply makes the part of the change that is specific to it.
	apply func(o *Order, at time.Time) error
}

// change decides a change of an order and applies it.
//
// Errors are ErrNotFound, *ConflictError, *PreconditionError, *KeyReuseError,
// *InvalidError of apply, *OverloadedError and *UnavailableError.
func (s *Service) change(ctx context.Context, id gocql.UUID, c edit, opts WriteOptions) (Result, error) {
	if err := s.loadSchema(ctx, c.kind.eventType()); err != nil {
		return Result{}, err
	}
	_, leave, err := s.guard.Enter(ctx, 1)
	if err != nil {
		return Result{}, err
	}
	defer leave()
	ctx, cancel := s.detach(ctx)
	defer cancel()

	me := s.newIdentity(id)
	if opts.IdempotencyKey != "" {
		// An order that does not exist must not use up a key.
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

// decide inserts the event at the next sequence number of the outbox by a
// conditional insert, which one writer wins, and then applies it to the order.
//
// Each round first reads the last events at SERIAL, which resolves the previous
// round: a decided conditional insert with an unknown outcome is completed by
// the read, whether it was ours or of another writer. If our insert is decided
// after the read, the next insert conflicts with it and the following read
// finds it.
func (s *Service) decide(ctx context.Context, c edit, me identity, opts WriteOptions) (Order, error) {
	unknown := me.retried
	keyed := opts.IdempotencyKey != ""
	var schema string
	var checked int64 // the version whose event fits schema
	for b := s.newBudget(ctx); ; {
		head, mine, err := s.findChange(ctx, &me, keyed || unknown)
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
		// A refusal from here on is final: an insert of ours with an unknown outcome
		// was for a sequence number that is taken now, or followed the same checks.
		o, err := c.next(head, me, opts)
		if err != nil {
			return Order{}, err
		}
		e, err := o.event(c.kind.eventType(), opts.headers(ctx))
		if err != nil {
			return Order{}, err
		}
		// Once for each version: a new schema must not refuse an insert with an unknown outcome.
		if o.Version != checked {
			if schema, err = s.schemaOf(ctx, &e, me.retried); err != nil {
				return Order{}, err
			}
			checked = o.Version
		}
		e.Headers = registry.WithSchema(e.Headers, schema)
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
				continue // another writer was first: read its event
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
			return s.resolve(ctx, c, me, opts, unknown, err)
		}
	}
}

// errCrowded ends a change that lost every race to other writers.
var errCrowded = errors.New("lost every race to concurrent changes")

// findChange returns the current order and, if the change of me is among its
// events, the order after that change. search includes events before the last
// one.
func (s *Service) findChange(ctx context.Context, me *identity, search bool) (head Order, mine *Order, err error) {
	head, err = s.load(ctx, me.orderID, decided, repairNow)
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
	// All sequence numbers up to this one are taken by other writers.
	me.base = head.Version
	return head, nil, nil
}

// resolve determines the outcome of a change whose budget is used up, if the
// database answers.
func (s *Service) resolve(ctx context.Context, c edit, me identity, opts WriteOptions, unknown bool, cause error) (Order, error) {
	base := me.base
	head, mine, err := s.findChange(ctx, &me, true)
	switch {
	case err != nil:
		return Order{}, s.unavailable(ctx, me.orderID, unknown, cause)
	case mine != nil:
		return *mine, nil
	case head.Version > base: // another writer took the sequence number of the last attempt
		if _, err := c.next(head, me, opts); err != nil {
			return Order{}, err
		}
		// Another request with the same key may still be at it.
		return Order{}, s.unavailable(ctx, me.orderID, me.retried, cause)
	}
	return Order{}, s.unavailable(ctx, me.orderID, unknown, cause)
}

// next returns the order after c, or the reason why c is refused.
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

// allows returns the status of o after c, or the reason why c is refused.
func (o *Order) allows(c Change) (Status, *ConflictError) {
	to, ok := o.Status.after(c)
	if !ok || c == ChangeUpdate && o.Version >= MaxVersion {
		return "", &ConflictError{Order: *o, Change: c}
	}
	return to, nil
}

// applyDecided applies a decided event of ours to the order. The event is
// stored even if this fails; the next reader of the order applies it.
func (s *Service) applyDecided(ctx context.Context, o *Order) {
	err := s.store.apply(ctx, o)
	s.metrics.attempt(stepApply, fateOf(err))
	if err != nil {
		s.log.WarnContext(ctx, "order row is stale until the next read", "aggregate_id", o.ID, "event_id", o.EventID, "err", err)
	}
}

// Cancel cancels an order that is placed or confirmed and stores its
// OrderCancelled event.
//
// Of several concurrent requests to cancel an order, one succeeds and the
// others return a *ConflictError; there is one event. Other errors are
// ErrNotFound, *InvalidError, *PreconditionError, *KeyReuseError,
// *OverloadedError and *UnavailableError. After an *UnavailableError with
// Unknown set, repeat the request with the same Idempotency-Key to learn the
// outcome.
func (s *Service) Cancel(ctx context.Context, id gocql.UUID, c Cancellation, opts WriteOptions) (Result, error) {
	if err := errors.Join(c.Validate(), validateKey(opts.IdempotencyKey)); err != nil {
		return Result{}, mergeInvalid(err)
	}
	return s.change(ctx, id, edit{ChangeCancel, newChangeRequest(id, c, opts), func(o *Order, at time.Time) error {
		if c.CancelledAt != nil {
			at = millis(*c.CancelledAt)
		}
		o.CancelledAt = &at
		o.CreditNote = c.CreditNote
		o.CancelReason = c.Reason
		return nil
	}}, opts)
}

// Update changes lines, address or country of an order that is placed or
// confirmed and stores its OrderUpdated event.
//
// Errors are as for Cancel. A price that does not fit the currency of the
// order is an *InvalidError, and nothing is stored.
func (s *Service) Update(ctx context.Context, id gocql.UUID, u Update, opts WriteOptions) (Result, error) {
	if err := errors.Join(u.Validate(), validateKey(opts.IdempotencyKey)); err != nil {
		return Result{}, mergeInvalid(err)
	}
	return s.change(ctx, id, edit{ChangeUpdate, newChangeRequest(id, u, opts), func(o *Order, _ time.Time) error {
		if u.Country != nil {
			o.Country = *u.Country
		}
		if u.Address != nil {
			o.Address = u.Address
		}
		if u.Lines == nil {
			return nil
		}
		var bad InvalidError
		validateLines(&bad, u.Lines, o.Currency)
		if err := bad.OrNil(); err != nil {
			return err
		}
		return o.setLines(u.Lines)
	}}, opts)
}

// Confirm confirms an order that is placed. Its event is an OrderUpdated with
// the status confirmed. Errors are as for Cancel.
func (s *Service) Confirm(ctx context.Context, id gocql.UUID, c Confirmation, opts WriteOptions) (Result, error) {
	if err := validateKey(opts.IdempotencyKey); err != nil {
		return Result{}, err
	}
	return s.change(ctx, id, edit{ChangeConfirm, newChangeRequest(id, c, opts), func(o *Order, at time.Time) error {
		o.ConfirmedAt = &at
		return nil
	}}, opts)
}

// Ship marks a confirmed order as shipped. Its event is an OrderUpdated with
// the status shipped. The order can no longer be changed. Errors are as for
// Cancel.
func (s *Service) Ship(ctx context.Context, id gocql.UUID, h Shipment, opts WriteOptions) (Result, error) {
	if err := errors.Join(h.Validate(), validateKey(opts.IdempotencyKey)); err != nil {
		return Result{}, mergeInvalid(err)
	}
	return s.change(ctx, id, edit{ChangeShip, newChangeRequest(id, h, opts), func(o *Order, at time.Time) error {
		if h.ShippedAt != nil {
			at = millis(*h.ShippedAt)
		}
		o.ShippedAt = &at
		o.Carrier, o.Tracking = h.Carrier, h.Tracking
		return nil
	}}, opts)
}
