package orders

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/guard"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
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

	me, b := s.newIdentity(id), s.newBudget(ctx)
	// Before the claim: an order that does not exist must not use up a key.
	o, err := s.loadLast(ctx, id, b)
	if err != nil {
		return Result{}, err
	}
	me.base = o.Version
	if opts.IdempotencyKey != "" {
		if me, err = s.claim(ctx, opts, c.kind.operation(), c.request, me); err != nil {
			return Result{}, err
		}
	}
	if o, err = s.decide(ctx, b, o, c, me, opts); err != nil {
		return Result{}, err
	}
	return Result{Order: o, Replayed: me.retried}, nil
}

// loadLast is load within a budget, before anything is built on the order.
func (s *Service) loadLast(ctx context.Context, id gocql.UUID, b *retry.Budget) (Order, error) {
	for {
		o, err := s.load(ctx, id, repairNow)
		if err == nil || errors.Is(err, ErrNotFound) {
			return o, err
		}
		if errors.Is(err, guard.ErrOpen) || !b.Pause() {
			return Order{}, s.unavailable(ctx, id, false, err)
		}
	}
}

// decide appends the event of the change to the events of the order, which one writer of each
// number wins, and then applies it to the order's rows. head is the order as its rows have it:
// they may lag, so a refusal counts only after a read of the events.
//
// A refusal is final then: an insert of an earlier attempt that is still under way was for a
// number that is taken, or followed the same checks.
func (s *Service) decide(ctx context.Context, b *retry.Budget, head Order, c edit, me identity, opts WriteOptions) (Order, error) {
	last, lost := false, false // head is the last state of the order; another writer was first
	for {
		o, refused := c.next(head, me, opts)
		switch {
		case refused != nil && last:
			return Order{}, refused
		case lost && b.Left() <= 0:
			return Order{}, s.unavailable(ctx, me.orderID, me.retried, errCrowded)
		}
		e := outbox.Event{ID: outbox.IDFromUUID(me.eventID), AggregateID: outbox.IDFromUUID(me.orderID), Sequence: head.Version + 1}
		from := outbox.AppendOptions{SearchFrom: me.base + 1, VersionWrittenAt: head.UpdatedAt}
		var r outbox.Appended
		var err error
		if refused != nil || me.retried && !last {
			var stored bool
			if r, stored, err = s.appender.Find(ctx, e, from); err == nil && !stored {
				last = true
				continue
			}
		} else {
			if e, err = s.changeEvent(ctx, &o, c.kind, me, opts); err != nil {
				return Order{}, err
			}
			r, err = s.appender.AppendNext(ctx, e, from)
		}
		conflict, isConflict := errors.AsType[*outbox.ConflictError](err)
		switch {
		case err == nil:
			return s.applyOwn(ctx, &head, &o, &r.Event)
		case !isConflict:
			_, unknown := errors.AsType[*outbox.UnknownOutcomeError](err)
			return Order{}, s.unavailable(ctx, me.orderID, unknown || me.retried, err)
		}
		if head, err = fromEvent(&conflict.Events[len(conflict.Events)-1]); err != nil {
			return Order{}, s.unavailable(ctx, me.orderID, me.retried, err)
		}
		s.applyDecided(ctx, &head)
		s.metrics.lostRaces.Inc()
		last, lost = len(conflict.Events) < outbox.MaxConflictEvents, true
	}
}

// errCrowded ends a change that lost every race to other writers.
var errCrowded = errors.New("lost every race to concurrent changes")

// changeEvent returns the event of a change that makes o.
func (s *Service) changeEvent(ctx context.Context, o *Order, c Change, me identity, opts WriteOptions) (outbox.Event, error) {
	e, err := o.event(c.eventType(), opts.headers(ctx))
	if err != nil {
		return outbox.Event{}, err
	}
	schema, err := s.findSchema(ctx, &e, me.retried)
	e.Headers = registry.WithSchema(e.Headers, schema)
	return e, err
}

// applyOwn returns the order after the event of this change, which is stored: next, unless an
// earlier attempt has stored the event under another number. head is the order before.
func (s *Service) applyOwn(ctx context.Context, head, next *Order, e *outbox.Event) (Order, error) {
	o := *next
	if o.Version != e.Sequence {
		var err error
		if o, err = fromEvent(e); err != nil {
			return Order{}, s.unavailable(ctx, head.ID, true, err)
		}
	}
	if o.Version > head.Version {
		s.afterCommit(ctx, &o)
		s.applyDecided(ctx, &o)
	}
	return o, nil
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

// applyDecided writes the rows of an order after a stored event. If this fails, the next reader
// of the order does it, or the sweep.
func (s *Service) applyDecided(ctx context.Context, o *Order) (applied bool) {
	err := s.store.apply(ctx, o)
	s.metrics.attempt(stepApply, classifyFate(err))
	if err != nil {
		s.log.WarnContext(ctx, "order row is stale until the next read", "aggregate_id", o.ID, "event_id", o.EventID, "err", err)
	}
	return err == nil
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
