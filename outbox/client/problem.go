package client

import (
	"fmt"
	"strings"
	"time"
)

// Types of problems that callers tell apart most; GET /problems lists them all.
const (
	ProblemNotFound    = "urn:scylla-outbox:problem:order-not-found"
	ProblemInvalid     = "urn:scylla-outbox:problem:invalid-fields"
	ProblemCancelled   = "urn:scylla-outbox:problem:already-cancelled"
	ProblemShipped     = "urn:scylla-outbox:problem:already-shipped"
	ProblemConfirmed   = "urn:scylla-outbox:problem:already-confirmed"
	ProblemUnconfirmed = "urn:scylla-outbox:problem:not-confirmed"
	ProblemStale       = "urn:scylla-outbox:problem:stale-version"
	ProblemKeyReuse    = "urn:scylla-outbox:problem:idempotency-key-reuse"
	ProblemUnavailable = "urn:scylla-outbox:problem:database-unavailable"
	ProblemUnknown     = "urn:scylla-outbox:problem:outcome-unknown"
	ProblemOverloaded  = "urn:scylla-outbox:problem:overloaded"
	ProblemNoMessage   = "urn:scylla-outbox:problem:message-not-found"
	ProblemTooLate     = "urn:scylla-outbox:problem:message-too-late"
	ProblemNotWaiting  = "urn:scylla-outbox:problem:message-not-waiting"
	ProblemQuota       = "urn:scylla-outbox:problem:quota-used-up"
)

// Problem is what the service answered instead (RFC 9457). Find it with errors.As.
type Problem struct {
	// Type says which problem it is; empty if a proxy answered.
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail says it to people.
	Detail string `json:"detail"`
	// Errors name every bad field.
	Errors []FieldError `json:"errors"`
	// OrderID is the order in question, where there is one.
	OrderID string `json:"order_id"`
	// MessageID is the message in question, where there is one.
	MessageID string `json:"message_id"`
	// State is where the message stands, where it is why a change is refused.
	State MessageState `json:"state"`
	// CurrentStatus is the order's, where it is why a change is refused.
	CurrentStatus Status `json:"current_status"`
	// OutcomeUnknown: the change may be stored, or become so later. The same
	// request with the same key finds out.
	OutcomeUnknown bool `json:"outcome_unknown"`

	// RequestID finds the request in the service's log.
	RequestID string `json:"-"`
	// RetryAfter is how long the service asked to wait; zero if it did not.
	RetryAfter time.Duration `json:"-"`
}

// FieldError is one bad field of a request.
type FieldError struct {
	Location string `json:"location"`
	Message  string `json:"message"`
}

// Error says what the service said.
func (p *Problem) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s", p.Status, p.Title)
	if p.Detail != "" {
		b.WriteString(": " + p.Detail)
	}
	for _, e := range p.Errors {
		b.WriteString("; " + e.Location + " " + e.Message)
	}
	return b.String()
}
