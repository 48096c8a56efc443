package orders

import (
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"
)

// problem is an RFC 9457 problem document with this API's own members.
type problem struct {
	huma.ErrorModel
	// OrderID is the order in question, where there is one.
	OrderID string `json:"order_id,omitempty" format:"uuid" doc:"The order in question"`
	// OutcomeUnknown: the change may be stored, or become so later.
	OutcomeUnknown bool `json:"outcome_unknown,omitempty" doc:"The change may be stored, or become so later"`
	// Links lead on from here.
	Links *links `json:"links,omitempty"`

	header http.Header
}

// GetHeaders are the response headers that go with the problem.
func (p *problem) GetHeaders() http.Header { return p.header }

// Problem types. They identify the kind of problem and are no addresses.
const (
	problemMalformed   = "urn:scylla-outbox:problem:malformed-body"
	problemInvalid     = "urn:scylla-outbox:problem:invalid-fields"
	problemNotFound    = "urn:scylla-outbox:problem:order-not-found"
	problemCancelled   = "urn:scylla-outbox:problem:already-cancelled"
	problemKeyReuse    = "urn:scylla-outbox:problem:idempotency-key-reuse"
	problemUnavailable = "urn:scylla-outbox:problem:database-unavailable"
	problemUnknown     = "urn:scylla-outbox:problem:outcome-unknown"
	problemMedia       = "urn:scylla-outbox:problem:unsupported-media-type"
)

func newProblem(status int, typ, detail string) *problem {
	return &problem{
		ErrorModel: huma.ErrorModel{Type: typ, Title: http.StatusText(status), Status: status, Detail: detail},
		header:     http.Header{},
	}
}

func (p *problem) about(id gocql.UUID) *problem {
	if id != (gocql.UUID{}) {
		p.OrderID = id.String()
		p.Links = linksTo(id)
	}
	return p
}

// toProblem is the one place where the package's errors become HTTP. keyed says
// whether the request had an Idempotency-Key, which decides about the advice.
func toProblem(err error, id gocql.UUID, keyed bool) error {
	var syntax *syntaxError
	var invalid *InvalidError
	var cancelled *CancelledError
	var reuse *KeyReuseError
	var unavailable *UnavailableError
	switch {
	case errors.As(err, &syntax):
		return newProblem(http.StatusBadRequest, problemMalformed, syntax.Error())
	case errors.As(err, &invalid):
		p := newProblem(http.StatusUnprocessableEntity, problemInvalid, "The request has bad fields; errors names each of them.")
		for _, f := range invalid.Fields {
			p.Errors = append(p.Errors, &huma.ErrorDetail{Location: location(f.Field), Message: f.Problem, Value: f.Value})
		}
		return p
	case errors.Is(err, ErrNotFound):
		return newProblem(http.StatusNotFound, problemNotFound, fmt.Sprintf("There is no order %s.", id))
	case errors.As(err, &cancelled):
		return newProblem(http.StatusConflict, problemCancelled, "The order is already cancelled.").about(cancelled.Order.ID)
	case errors.As(err, &reuse):
		return newProblem(http.StatusUnprocessableEntity, problemKeyReuse, fmt.Sprintf(
			"This Idempotency-Key belongs to another request (%s). Use a new key for a new request, and the same body for a retry.", reuse.Operation))
	case errors.As(err, &unavailable):
		p := newProblem(http.StatusServiceUnavailable, problemUnavailable, "The database cannot be reached. This request stored nothing; ask again later.")
		if unavailable.Unknown {
			p = newProblem(http.StatusServiceUnavailable, problemUnknown,
				"The outcome is unknown: the change may be stored, or become so later. Look at the order before asking again; with an Idempotency-Key a repeated request is safe.")
			if keyed {
				p.Detail = "The outcome is unknown: the change may be stored, or become so later. Ask again with the same Idempotency-Key."
			}
			p.OutcomeUnknown = true
			p.about(unavailable.OrderID)
		}
		p.header.Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(unavailable.RetryAfter.Seconds())))))
		return p
	}
	// What is not named above is a defect; huma answers 500, and the text of
	// the error stays in the log.
	return newProblem(http.StatusInternalServerError, "about:blank", "Something unexpected happened; the log has the details.")
}

// location is a field's path as huma writes it.
func location(field string) string {
	switch {
	case field == "":
		return "body"
	case len(field) > 7 && field[:7] == "header.":
		return field
	}
	return "body." + field
}
