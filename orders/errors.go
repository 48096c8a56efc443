package orders

import (
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/guard"
	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
)

// ErrNotFound says that there is no order with that id.
var ErrNotFound = errors.New("no such order")

// FieldError is one bad field of a request.
type FieldError = jsonform.FieldError

// InvalidError lists every bad field of a request, up to a bound.
type InvalidError = jsonform.InvalidError

// OverloadedError says that there was no room for the request. Nothing was done.
type OverloadedError = guard.OverloadedError

// ConflictError says that the order's status does not allow the change, or that
// it was updated MaxVersion times.
type ConflictError struct {
	// Order is the order as it is.
	Order Order
	// Change is what was asked for.
	Change Change
}

// Error names the order and why.
func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s order %s: %s", e.Change, e.Order.ID, e.Reason())
}

// Reason says in a sentence why the change is refused.
func (e *ConflictError) Reason() string {
	switch {
	case e.Order.Status == StatusCancelled:
		return "The order is already cancelled."
	case e.Order.Status == StatusShipped:
		return "The order is already shipped; nothing changes it any more."
	case e.Change == ChangeConfirm:
		return "The order is already confirmed."
	case e.Change == ChangeShip:
		return "The order is not confirmed; confirm it first."
	}
	return fmt.Sprintf("The order was changed %d times, which is as often as an order can be updated.", e.Order.Version-1)
}

// PreconditionError says that the order is not at a version that the caller asked for.
type PreconditionError struct {
	// Order is the order as it is.
	Order Order
}

// Error names the order and its version.
func (e *PreconditionError) Error() string {
	return fmt.Sprintf("order %s is at version %d", e.Order.ID, e.Order.Version)
}

// KeyReuseError says that an Idempotency-Key belongs to another request.
type KeyReuseError struct {
	// Operation is what the key was first used for.
	Operation string
}

// Error says what the key was used for.
func (e *KeyReuseError) Error() string {
	return "this Idempotency-Key was used for another request (" + e.Operation + ")"
}

// UnavailableError says that the database could not do it in time.
type UnavailableError struct {
	// OrderID is the order in question; zero if none has an id yet.
	OrderID gocql.UUID
	// Unknown: the change may be stored, or become so later. Otherwise this
	// request has stored nothing.
	Unknown bool
	// RetryAfter is when asking again makes sense.
	RetryAfter time.Duration
	// Err is what the database said last.
	Err error
}

// Error says what is known.
func (e *UnavailableError) Error() string {
	if e.Unknown {
		return fmt.Sprintf("order %s: outcome unknown: %v", e.OrderID, e.Err)
	}
	return fmt.Sprintf("database unavailable: %v", e.Err)
}

// Unwrap returns what the database said last.
func (e *UnavailableError) Unwrap() error { return e.Err }
