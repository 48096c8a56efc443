package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Problem is an error response of a service (RFC 9457). Compare an error with ErrNotFound or a
// Type by errors.Is, and find the Problem in its chain by errors.As.
type Problem struct {
	// Type is the problem type; empty for a response of a proxy.
	Type   Type   `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail is a description for people.
	Detail string `json:"detail"`
	// Errors name every bad field.
	Errors []FieldError `json:"errors"`
	// OutcomeUnknown is true if the change may be stored now or later. Retry the
	// request with the same key to learn the outcome.
	OutcomeUnknown bool `json:"outcome_unknown"`

	// RequestID finds the request in the service's log.
	RequestID string `json:"-"`
	// RetryAfter is the value of Retry-After; zero without one.
	RetryAfter time.Duration `json:"-"`
	// Document is the problem document with the members of its type; nil for a response of a
	// proxy.
	Document json.RawMessage `json:"-"`
}

// FieldError is one bad field of a request.
type FieldError struct {
	Location string `json:"location"`
	Message  string `json:"message"`
}

// Type is the type of a Problem, and an error for errors.Is. GET /problems of a service lists
// all of its types.
type Type string

// The types that the APIs have in common. The packages of the clients have the types of one API.
const (
	// ErrInvalid: fields of the request are invalid; see Problem.Errors.
	ErrInvalid Type = "urn:scylla-outbox:problem:invalid-fields"
	// ErrStale: the object has another version than the request names.
	ErrStale Type = "urn:scylla-outbox:problem:stale-version"
	// ErrKeyReuse: another request has had the same Idempotency-Key.
	ErrKeyReuse Type = "urn:scylla-outbox:problem:idempotency-key-reuse"
	// ErrUnavailable: the database is not available.
	ErrUnavailable Type = "urn:scylla-outbox:problem:database-unavailable"
	// ErrOverloaded: the service has too many requests.
	ErrOverloaded Type = "urn:scylla-outbox:problem:overloaded"
)

// ErrNotFound is any Problem about an object that does not exist: a message, a subscription, a
// lease. A wrong URL of the service is none.
var ErrNotFound = errors.New("not found")

// Error returns the type.
func (t Type) Error() string { return string(t) }

// Is reports whether target is ErrNotFound or a Type that p has.
func (p *Problem) Is(target error) bool {
	if target == ErrNotFound { //nolint:errorlint // errors.Is unwraps
		return p.Status == http.StatusNotFound && strings.HasSuffix(string(p.Type), "not-found")
	}
	return p.Type != "" && target == error(p.Type) //nolint:errorlint // errors.Is unwraps
}

// UnmarshalJSON reads a problem document, and keeps it.
func (p *Problem) UnmarshalJSON(b []byte) error {
	type plain Problem // without this method
	if err := json.Unmarshal(b, (*plain)(p)); err != nil {
		return err
	}
	p.Document = bytes.Clone(b)
	return nil
}

// Error returns status, title, detail and bad fields.
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
