package messages

import (
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/guard"
	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
)

// ErrNotFound is returned for an unknown or expired message id.
var ErrNotFound = errors.New("no such message")

// ErrTooLate is returned for a message that is in the outbox or published and
// can no longer be cancelled.
var ErrTooLate = errors.New("the message is already released")

// NotWaitingError reports that a message is no longer scheduled, so that it
// cannot be delivered now.
type NotWaitingError struct{ State State }

// Error returns the state of the message.
func (e *NotWaitingError) Error() string {
	return "the message does not wait: it is " + string(e.State)
}

// FieldError is one bad field of a message.
type FieldError = jsonform.FieldError

// InvalidError lists every bad field of a message, up to a bound.
type InvalidError = jsonform.InvalidError

// QuotaError reports that a client has used up its quota.
type QuotaError struct {
	// RetryAfter is the time until there is quota for the request; zero if the
	// request exceeds the whole quota.
	RetryAfter time.Duration
}

// Error returns the reason.
func (e *QuotaError) Error() string { return "the client's quota is used up" }

// OverloadedError reports that the service has no capacity for the request.
// Nothing was done.
type OverloadedError = guard.OverloadedError

// UnavailableError reports that the database did not answer in time, or, with a
// *PayloadError in its chain, that the store of payloads failed.
type UnavailableError struct {
	// ID is the id of the message; zero if it has none yet.
	ID gocql.UUID
	// Unknown is true if the message may be stored now or later. Otherwise the
	// request has stored nothing.
	Unknown bool
	// RetryAfter is the recommended delay before a retry.
	RetryAfter time.Duration
	// Err is the last error of the database, or a *PayloadError.
	Err error
}

// Error reports whether the outcome is known.
func (e *UnavailableError) Error() string {
	if e.Unknown {
		return fmt.Sprintf("message %s: outcome unknown: %v", e.ID, e.Err)
	}
	if errors.As(e.Err, new(*PayloadError)) {
		return fmt.Sprintf("store of payloads unavailable: %v", e.Err)
	}
	if errors.Is(e.Err, registry.ErrUnavailable) {
		return e.Err.Error()
	}
	return fmt.Sprintf("database unavailable: %v", e.Err)
}

// Unwrap returns the last error of the database.
func (e *UnavailableError) Unwrap() error { return e.Err }
