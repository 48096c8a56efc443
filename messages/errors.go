package messages

import (
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/guard"
	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
)

// ErrNotFound says that there is no message with that id, or none any more.
var ErrNotFound = errors.New("no such message")

// ErrTooLate says that a message is in the outbox, or beyond, and cannot be taken back.
var ErrTooLate = errors.New("the message is on its way")

// NotWaitingError says that a message waits no more, so that it cannot be released.
type NotWaitingError struct{ State State }

// Error says where it stands.
func (e *NotWaitingError) Error() string {
	return "the message does not wait: it is " + string(e.State)
}

// FieldError is one bad field of a message.
type FieldError = jsonform.FieldError

// InvalidError lists every bad field of a message, up to a bound.
type InvalidError = jsonform.InvalidError

// KeyReuseError says that an Idempotency-Key belongs to another request of the client.
type KeyReuseError struct{}

// Error says so.
func (*KeyReuseError) Error() string { return "this Idempotency-Key was used for another request" }

// QuotaError says that a client has used up what it may send.
type QuotaError struct {
	// RetryAfter is when there is room for the request again; zero if it is
	// larger than there can ever be.
	RetryAfter time.Duration
}

// Error says so.
func (e *QuotaError) Error() string { return "the client's quota is used up" }

// OverloadedError says that there was no room for the request. Nothing was done.
type OverloadedError = guard.OverloadedError

// UnavailableError says that the database could not do it in time.
type UnavailableError struct {
	// ID is the message in question; zero if none has an id yet.
	ID gocql.UUID
	// Unknown: the message may be stored, or become so later. Otherwise this
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
		return fmt.Sprintf("message %s: outcome unknown: %v", e.ID, e.Err)
	}
	return fmt.Sprintf("database unavailable: %v", e.Err)
}

// Unwrap returns what the database said last.
func (e *UnavailableError) Unwrap() error { return e.Err }
