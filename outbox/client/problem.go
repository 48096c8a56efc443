package client

import (
	"fmt"
	"strings"
	"time"
)

// The most common problem types of the order API; GET /problems lists all.
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

// Problem is an error response of the service (RFC 9457). Use errors.As to find
// it.
type Problem struct {
	// Type is the problem type; empty for a response of a proxy.
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail is a description for people.
	Detail string `json:"detail"`
	// Errors name every bad field.
	Errors []FieldError `json:"errors"`
	// OrderID is the order in question, where there is one.
	OrderID string `json:"order_id"`
	// MessageID is the message in question, where there is one.
	MessageID string `json:"message_id"`
	// State is the state of the message, if it is the reason of a refusal.
	State MessageState `json:"state"`
	// CurrentStatus is the status of the order, if it is the reason of the
	// refusal.
	CurrentStatus Status `json:"current_status"`
	// OutcomeUnknown is true if the change may be stored now or later. Retry the
	// request with the same key to learn the outcome.
	OutcomeUnknown bool `json:"outcome_unknown"`
	// Results is set by Ack, Nack, Extend, Reject and Release.
	Results []SettleResult `json:"results"`

	// RequestID finds the request in the service's log.
	RequestID string `json:"-"`
	// RetryAfter is the value of Retry-After; zero without one.
	RetryAfter time.Duration `json:"-"`
}

// FieldError is one bad field of a request.
type FieldError struct {
	Location string `json:"location"`
	Message  string `json:"message"`
}

// Error returns status, type and detail.
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
