package orders

import (
	"errors"
	"fmt"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
)

// problem is an RFC 9457 problem document with this API's own members.
type problem struct {
	httpapi.Problem
	// OrderID is the order in question, where there is one.
	OrderID string `json:"order_id,omitempty" format:"uuid" doc:"The order in question"`
	// OutcomeUnknown is true if the change may be stored now or later.
	OutcomeUnknown bool `json:"outcome_unknown,omitempty" doc:"The change may be stored now or later"`
	// CurrentStatus is the status of the order, if it is the reason of the
	// refusal.
	CurrentStatus Status `json:"current_status,omitempty" enum:"placed,confirmed,shipped,cancelled" doc:"The order's status, where it is why the change is refused"`
	// Links are the operations on the order.
	Links *links `json:"links,omitempty"`
}

// Problem types. httpapi.Kinds describes them.
const (
	problemMalformed   = httpapi.TypeMalformed
	problemInvalid     = httpapi.TypeInvalid
	problemNotFound    = httpapi.TypeOrderNotFound
	problemCancelled   = httpapi.TypeCancelled
	problemShipped     = httpapi.TypeShipped
	problemConfirmed   = httpapi.TypeConfirmed
	problemUnconfirmed = httpapi.TypeUnconfirmed
	problemTooOften    = httpapi.TypeTooManyChanges
	problemStale       = httpapi.TypeStale
	problemNeedsMatch  = httpapi.TypeNeedsMatch
	problemKeyReuse    = httpapi.TypeKeyReuse
	problemOverload    = httpapi.TypeOverloaded
	problemUnavailable = httpapi.TypeUnavailable
	problemUnknown     = httpapi.TypeUnknown
	problemInternal    = httpapi.TypeInternal
)

func newProblem(typ, detail string) *problem {
	return &problem{Problem: httpapi.New(typ, detail)}
}

func (p *problem) about(id gocql.UUID) *problem {
	if id != (gocql.UUID{}) {
		p.OrderID = id.String()
		p.Links = linksTo(id)
	}
	return p
}

// at is about for a known order; it sets the ETag.
func (p *problem) at(o *Order) *problem {
	p.Header().Set("ETag", etag(o.Version))
	return p.about(o.ID)
}

// problem is the type of the problem that e is.
func (e *ConflictError) problem() string {
	switch {
	case e.Order.Status == StatusCancelled:
		return problemCancelled
	case e.Order.Status == StatusShipped:
		return problemShipped
	case e.Change == ChangeConfirm:
		return problemConfirmed
	case e.Change == ChangeShip:
		return problemUnconfirmed
	}
	return problemTooOften
}

// toProblem maps the errors of the package to HTTP. keyed reports whether the
// request had an Idempotency-Key; the advice depends on it.
func toProblem(err error, id gocql.UUID, keyed bool) error {
	var syntax *jsonform.SyntaxError
	var invalid *InvalidError
	var conflict *ConflictError
	var stale *PreconditionError
	var reuse *KeyReuseError
	var overloaded *OverloadedError
	var unavailable *UnavailableError
	switch {
	case errors.As(err, &syntax):
		p := newProblem(problemMalformed, syntax.Error())
		p.Errors = append(p.Errors, &huma.ErrorDetail{Location: jsonform.Location(syntax.Field), Message: syntax.Problem})
		return p
	case errors.As(err, &invalid):
		p := newProblem(problemInvalid, "The request has invalid fields; errors lists each of them.")
		for _, f := range invalid.Fields {
			p.Errors = append(p.Errors, &huma.ErrorDetail{Location: jsonform.Location(f.Field), Message: f.Problem})
		}
		return p
	case errors.Is(err, ErrNotFound):
		return newProblem(problemNotFound, fmt.Sprintf("Order %s does not exist.", id))
	case errors.As(err, &conflict):
		p := newProblem(conflict.problem(), conflict.Reason()).at(&conflict.Order)
		p.CurrentStatus = conflict.Order.Status
		return p
	case errors.As(err, &stale):
		return newProblem(problemStale, fmt.Sprintf(
			"The order is at version %d, which If-Match does not contain. Read it again and repeat the change if it still applies.", stale.Order.Version)).at(&stale.Order)
	case errors.As(err, &reuse):
		return newProblem(problemKeyReuse, fmt.Sprintf(
			"This Idempotency-Key belongs to another request (%s). Use a new key for a new request, and the same body for a retry.", reuse.Operation))
	case errors.As(err, &overloaded):
		return &problem{Problem: overloaded.Problem()}
	case errors.As(err, &unavailable):
		p := newProblem(problemUnavailable, "The database is unavailable. This request stored nothing; retry later.")
		if errors.Is(err, registry.ErrUnavailable) {
			p.Detail = "The schema registry is unavailable. This request stored nothing; retry later."
		}
		if unavailable.Unknown {
			p = newProblem(problemUnknown,
				"The outcome is unknown: the change may be stored now or later. Read the order before retrying; with an Idempotency-Key a retry is safe.")
			if keyed {
				p.Detail = "The outcome is unknown: the change may be stored now or later. Retry with the same Idempotency-Key."
			}
			p.OutcomeUnknown = true
			p.about(unavailable.OrderID)
		}
		p.RetryAfter(unavailable.RetryAfter)
		return p
	}
	// Any other error is a defect. The response is 500; the log contains the text
	// of the error.
	return newProblem(problemInternal, "Internal error; the log contains the details.")
}
