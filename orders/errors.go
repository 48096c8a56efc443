package orders

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gocql/gocql"
)

// ErrNotFound says that there is no order with that id.
var ErrNotFound = errors.New("no such order")

// FieldError is one bad field of a request.
type FieldError struct {
	// Field is its path in the body, such as lines[2].quantity, or begins with header.
	Field string
	// Problem says what the field must be.
	Problem string
	// Value is what was given, if it is worth showing.
	Value any
}

// InvalidError lists every bad field of a request.
type InvalidError struct {
	Fields []FieldError
}

// Error names every field.
func (e *InvalidError) Error() string {
	parts := make([]string, len(e.Fields))
	for i, f := range e.Fields {
		parts[i] = f.Field + " " + f.Problem
	}
	return "invalid order: " + strings.Join(parts, "; ")
}

func (e *InvalidError) add(field, problem string, value any) {
	e.Fields = append(e.Fields, FieldError{Field: field, Problem: problem, Value: value})
}

func (e *InvalidError) orNil() error {
	if len(e.Fields) == 0 {
		return nil
	}
	return e
}

// CancelledError says that the order was already cancelled, by another request.
type CancelledError struct {
	// Order is the order as it is.
	Order Order
}

// Error names the order.
func (e *CancelledError) Error() string {
	return fmt.Sprintf("order %s is already cancelled", e.Order.ID)
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
