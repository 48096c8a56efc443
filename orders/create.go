package orders

import (
	"context"
	"errors"
	"fmt"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/internal/trace"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Create stores an order and its OrderCreated event, both or neither. Repeated
// with its Idempotency-Key, it returns the order as it was created, even if it
// has changed since, while the outbox contains its first event.
//
// Errors are *InvalidError, *KeyReuseError, *OverloadedError or
// *UnavailableError. After an *UnavailableError with Unknown set, repeat the
// request with the same Idempotency-Key to complete it; without a key, Get with
// OrderID of the error reports whether it was stored.
func (s *Service) Create(ctx context.Context, n NewOrder, opts WriteOptions) (Result, error) {
	if err := errors.Join(n.Validate(), validateKey(opts.IdempotencyKey)); err != nil {
		return Result{}, mergeInvalid(err)
	}
	return s.create(ctx, n, opts)
}

// create is Create for a valid order and a valid key.
func (s *Service) create(ctx context.Context, n NewOrder, opts WriteOptions) (Result, error) {
	if err := s.loadSchema(ctx, EventCreated); err != nil {
		return Result{}, err
	}
	_, leave, err := s.guard.Enter(ctx, 1)
	if err != nil {
		return Result{}, err
	}
	defer leave()
	ctx, cancel := s.detach(ctx)
	defer cancel()

	id := s.newIdentity(outbox.NewID().UUID())
	o, e, err := n.first(id, opts.headers(ctx))
	if err != nil {
		return Result{}, err
	}
	// Before the claim, so that a refused request stores nothing.
	schema, err := s.findSchema(ctx, &e, false)
	if err != nil {
		return Result{}, err
	}
	if opts.IdempotencyKey != "" {
		if id, err = s.claim(ctx, opts, opCreate, n, id); err != nil {
			return Result{}, err
		}
	}
	if id.retried {
		was, err := s.readCreated(ctx, &id)
		switch {
		case err == nil:
			return Result{Order: was, Replayed: true}, nil
		case !errors.Is(err, ErrNotFound):
			return Result{}, s.unavailable(ctx, id.orderID, true, err)
		}
		if o, e, err = n.first(id, opts.headers(ctx)); err != nil {
			return Result{}, err
		}
	}
	e.Headers = registry.WithSchema(e.Headers, schema)
	if err := s.storeNew(ctx, &o, e, id.retried); err != nil {
		return Result{}, err
	}
	return Result{Order: o, payload: e.Payload, Replayed: id.retried}, nil
}

// first returns the new order and its first event.
func (n *NewOrder) first(id identity, headers map[string]string) (Order, outbox.Event, error) {
	o, err := n.build(id)
	if err != nil {
		return Order{}, outbox.Event{}, err
	}
	e, err := o.event(EventCreated, headers)
	return o, e, err
}

// readCreated returns the order as it was created, which is the response to the
// first request, or ErrNotFound. Once its first event has expired, it returns
// the current order; its version shows this.
func (s *Service) readCreated(ctx context.Context, id *identity) (Order, error) {
	o, err := s.load(ctx, id.orderID, repairNow)
	if err != nil || o.Version == 1 {
		return o, err
	}
	e, err := s.store.lastEvent(ctx, selectEvent, id.orderID.String(), int64(1))
	if err != nil || e == nil || e.ID.UUID() != id.eventID {
		return o, err
	}
	return fromEvent(e)
}

// storeNew executes the batch of a new order until it is known to be stored.
//
// A write timeout leaves the outcome of the batch unknown: it may be applied
// now, within a minute by the batchlog, or never. storeNew therefore repeats it
// with the same ids, content and timestamp; the relay publishes the log rows of
// both as one event. Success of any attempt is success. It reads the rows back
// only if attempts keep failing. This proves less: the row of the CDC log may
// still be missing until the batchlog writes it.
//
// began reports whether an earlier request may have executed the batch already.
func (s *Service) storeNew(ctx context.Context, o *Order, e outbox.Event, began bool) error {
	// A client-side timestamp makes a repetition the same write. The log row of an
	// order of an earlier request would be at a time that the sweep reader has
	// passed; it needs a new time.
	eventTime := o.CreatedAt.UnixMicro()
	if began {
		eventTime = s.cfg.Clock.Now().UnixMicro()
	}
	unknown, repeated := began, false
	for b := s.newBudget(ctx); ; repeated = true {
		err := s.store.create(ctx, o, e, eventTime)
		f := classifyFate(err)
		s.metrics.attempt(stepBatch, f)
		switch {
		case f == fateDone:
			s.afterCommit(ctx, o)
			return nil
		case f == fateUnknown:
			unknown = true
		case f == fateInvalid && eventTime != 0:
			// ScyllaDB rejects timestamps more than 5 s ahead of its clock and timestamps
			// before the current CDC generation as invalid and applies nothing of the
			// batch. A server-side timestamp avoids both.
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

// isStored reports whether both rows of a new order can be read. It returns
// false if the read fails.
func (s *Service) isStored(ctx context.Context, o *Order) bool {
	got, event, err := s.read(ctx, o.ID)
	return err == nil && got != nil && event != nil && got.Version >= o.Version && event.Sequence >= o.Version
}

// headers returns the headers of the event.
func (opts WriteOptions) headers(ctx context.Context) map[string]string {
	return trace.Headers(ctx, opts.TraceParent, opts.TraceState, opts.RequestID)
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

// loadSchema waits until the schema of the events of a type is known. It precedes the place at
// the database, which must not wait for the schema registry. The error is an *UnavailableError.
func (s *Service) loadSchema(ctx context.Context, eventType string) error {
	if err := s.cfg.Schemas.Load(ctx, s.cfg.Publication.topic(eventType)); err != nil {
		return s.registryAway(ctx, gocql.UUID{}, false, err)
	}
	return nil
}

// findSchema returns the URL of the schema that the payload of e fits, "" if its topic has none.
// unknown reports whether an earlier request may have stored the change. The error is an
// *InvalidError of the whole request, because the payload is the order after it, or an
// *UnavailableError.
func (s *Service) findSchema(ctx context.Context, e *outbox.Event, unknown bool) (string, error) {
	url, err := s.cfg.Schemas.Check(ctx, s.cfg.Publication.topic(e.Type), e.Payload)
	if bad, ok := errors.AsType[*registry.ContractError](err); ok {
		return "", jsonform.Invalid("", "its event "+e.Type+" "+bad.Problem)
	}
	if err != nil {
		return "", s.registryAway(ctx, e.AggregateID.UUID(), unknown, err)
	}
	return url, nil
}

func (s *Service) registryAway(ctx context.Context, id gocql.UUID, unknown bool, err error) error {
	s.log.WarnContext(ctx, "schema registry unavailable", "aggregate_id", id, "outcome_unknown", unknown, "err", err)
	return &UnavailableError{OrderID: id, Unknown: unknown, RetryAfter: s.cfg.RetryAfter, Err: err}
}
