package orders

import (
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/guard"
	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
)

// ErrNotFound is returned for an unknown order id.
var ErrNotFound = errors.New("no such order")

// FieldError is one bad field of a request.
type FieldError = jsonform.FieldError

// InvalidError lists every bad field of a request, up to a bound.
type InvalidError = jsonform.InvalidError

// OverloadedError reports that the service has no capacity for the request.
// Nothing was done.
type OverloadedError = guard.OverloadedError

// ConflictError reports that the status of the order does not allow the change,
// or that the order was updated MaxVersion times.
type ConflictError struct {
	// Order is the current order.
	Order Order
	// Change is the requested change.
	Change Change
}

// Error names the order and why.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s order %s: %s", e.Change, e.Order.ID, e.Reason())
}

// Reason returns the reason for the refusal as a sentence.
func (e *ConflictError) Reason() string {
	switch {
	case e.Order.Status == StatusCancelled:
		return "The order is already cancelled."
	case e.Order.Status == StatusShipped:
		return "The order is already shipped and can no longer be changed."
	case e.Change == ChangeConfirm:
		return "The order is already confirmed."
	case e.Change == ChangeShip:
		return "The order is not confirmed; confirm it first."
	}
	return fmt.Sprintf("The order was changed %d times, which is as often as an order can be updated.", e.Order.Version-1)
}

// PreconditionError reports that the order is not at a requested version.
type PreconditionError struct {
	// Order is the current order.
	Order Order
}

// Error names the order and its version.
func (e *PreconditionError) Error() string {
	return fmt.Sprintf("order %s is at version %d", e.Order.ID, e.Order.Version)
}

// KeyReuseError reports that an Idempotency-Key belongs to another request.
type KeyReuseError struct {
	// Operation is the operation of the first request with the key.
	Operation string
}

// Error names the operation that owns the key.
func (e *KeyReuseError) Error() string {
	return "this Idempotency-Key was used for another request (" + e.Operation + ")"
}

// UnavailableError reports that the database did not answer in time, or that the schema
// registry, whose error wraps registry.ErrUnavailable, did not.
type UnavailableError struct {
	// OrderID is the id of the order; zero if it has none yet.
	OrderID gocql.UUID
	// Unknown is true if the change may be stored now or later. Otherwise the
	// request has stored nothing.
	Unknown bool
	// RetryAfter is the recommended delay before a retry.
	RetryAfter time.Duration
	// Err is the last error of the database or of the schema registry.
	Err error
}

// Error reports whether the outcome is known.
func (e *UnavailableError) Error() string {
	if e.Unknown {
		return fmt.Sprintf("order %s: outcome unknown: %v", e.OrderID, e.Err)
	}
	if errors.Is(e.Err, registry.ErrUnavailable) {
		return e.Err.Error()
	}
	return fmt.Sprintf("database unavailable: %v", e.Err)
}

// Unwrap returns Err.
func (e *UnavailableError) Unwrap() error { return e.Err }
