package orders

import (
	"context"
	"errors"
	"time"

	"github.com/gocql/gocql"
)

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
