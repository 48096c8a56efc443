package orders

import (
	"context"
	"errors"
	"fmt"

	"github.com/scylla-outbox/scylla-outbox/internal/trace"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Create stores an order and its OrderCreated event, both or neither. Repeated with
// its Idempotency-Key it returns the order as it was created, whatever has become of
// it, as long as the outbox keeps its first event.
//
// Errors are *InvalidError, *KeyReuseError, *OverloadedError or *UnavailableError. After the
// last with Unknown set, the same request with the same Idempotency-Key finds
// out and completes it; without a key, Get of the error's OrderID tells whether
// it was stored.
func (s *Service) Create(ctx context.Context, n NewOrder, opts WriteOptions) (Result, error) {
	if err := errors.Join(n.Validate(), validateKey(opts.IdempotencyKey)); err != nil {
		return Result{}, mergeInvalid(err)
	}
	_, leave, err := s.guard.Enter(ctx, 1)
	if err != nil {
		return Result{}, err
	}
	defer leave()
	ctx, cancel := s.detach(ctx)
	defer cancel()

	id := s.newIdentity(outbox.NewID())
	if opts.IdempotencyKey != "" {
		if id, err = s.claim(ctx, opts.ownKey(), opCreate, n, id); err != nil {
			return Result{}, err
		}
	}
	if id.retried {
		o, err := s.created(ctx, &id)
		switch {
		case err == nil:
			return Result{Order: o, Replayed: true}, nil
		case !errors.Is(err, ErrNotFound):
			return Result{}, s.unavailable(ctx, id.orderID, true, err)
		}
	}
	o, err := n.build(id)
	if err != nil {
		return Result{}, err
	}
	e, err := o.event(EventCreated, opts.headers())
	if err != nil {
		return Result{}, err
	}
	if err := s.storeNew(ctx, &o, e, id.retried); err != nil {
		return Result{}, err
	}
	return Result{Order: o, Replayed: id.retried}, nil
}

// created returns the order as its creation left it, which is what the first
// request was answered, or ErrNotFound. Once its first event has left the outbox,
// it is the order as it is now, which its version says.
func (s *Service) created(ctx context.Context, id *identity) (Order, error) {
	o, err := s.load(ctx, id.orderID, s.cfg.Consistency, repairNow)
	if err != nil || o.Version == 1 {
		return o, err
	}
	e, found, err := s.store.event(ctx, id.orderID, 1)
	if err != nil || !found || e.ID != id.eventID {
		return o, err
	}
	return fromEvent(&e)
}

// storeNew executes the batch of a new order until it is known to be stored.
//
// No write timeout says what became of the batch: it may have been applied, may
// be within a minute from the batchlog, or never. So it is executed again, same
// ids, same content, same timestamp; the relay takes the log rows of both for
// one event. Success of any attempt is success. Only when attempts keep failing
// are the rows read back: seeing them proves less, since the row of the CDC log
// may still be missing and then comes from the batchlog.
//
// began says that an earlier request may have executed it already.
func (s *Service) storeNew(ctx context.Context, o *Order, e outbox.Event, began bool) error {
	// A timestamp of our own makes a repetition the same write. The log row of
	// an earlier request's order would stand where the relay's sweep has been;
	// it must come in as new.
	eventTime := o.CreatedAt.UnixMicro()
	if began {
		eventTime = s.cfg.Now().UnixMicro()
	}
	unknown, repeated := began, false
	for b := s.newBudget(ctx); ; repeated = true {
		err := s.store.create(ctx, o, e, eventTime)
		f := fateOf(err)
		s.metrics.attempt(stepBatch, f)
		switch {
		case f == fateDone:
			s.committed(ctx, o)
			return nil
		case f == fateUnknown:
			unknown = true
		case f == fateInvalid && eventTime != 0:
			// ScyllaDB refuses timestamps ahead of its clock by more than 5 s and
			// those before the current CDC generation, both as invalid, the whole
			// batch untouched. Its own clock is always right.
			eventTime = 0
			continue
		}
		if !unknown {
			return s.unavailable(ctx, o.ID, false, err)
		}
		more := b.Pause()
		if (repeated || !more) && s.isStored(ctx, o) {
			return nil
		}
		if !more {
			return s.unavailable(ctx, o.ID, true, err)
		}
	}
}

// isStored tells whether both rows of a new order can be read. False means
// that they cannot, or that nobody can tell.
func (s *Service) isStored(ctx context.Context, o *Order) bool {
	got, event, err := s.read(ctx, o.ID, s.cfg.Consistency)
	return err == nil && got != nil && event != nil && got.Version >= o.Version && event.Sequence >= o.Version
}

// headers are what of opts travels with the event.
func (opts WriteOptions) headers() map[string]string {
	return trace.Headers(opts.TraceParent, opts.TraceState, opts.RequestID)
}

// mergeInvalid makes one *InvalidError of joined ones.
func mergeInvalid(err error) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	var all InvalidError
	for _, e := range joined.Unwrap() {
		var bad *InvalidError
		if !errors.As(e, &bad) {
			return fmt.Errorf("validate: %w", err)
		}
		all.Fields = append(all.Fields, bad.Fields...)
	}
	return &all
}
