package stream

import (
	"errors"
	"net/http"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// Problem types. httpapi.Kinds describes them.
const (
	problemInvalid   = httpapi.TypeInvalid
	problemHandshake = httpapi.TypeHandshake
	problemUpgrade   = httpapi.TypeUpgrade
	problemFull      = httpapi.TypeTooManyWatchers
	problemBroker    = httpapi.TypeBroker
	problemStopping  = httpapi.TypeStopping
	problemCrossSite = httpapi.TypeCrossSite
	problemInternal  = httpapi.TypeInternal
)

// Problems returns the types of event streams, for the catalogue of their server.
func Problems() []string {
	return []string{problemHandshake, problemUpgrade, problemFull, problemBroker}
}

func newProblem(typ, detail string) *httpapi.Problem {
	p := httpapi.New(typ, detail)
	return &p
}

// bad returns the problem of an invalid parameter.
func bad(location, message string) *httpapi.Problem {
	p := httpapi.Invalid(location, message)
	return &p
}

// notLetIn returns the problem of a request that the gate refuses.
func notLetIn(err error) *httpapi.Problem {
	e, ok := errors.AsType[*access.Error](err)
	if !ok {
		return newProblem(problemInternal, "Internal error; see the log.")
	}
	p := newProblem(e.Type(), e.Detail)
	e.Header(p.Header())
	return p
}

// ofHandshake returns the problem type of an error of the WebSocket library.
func ofHandshake(status int) string {
	switch status {
	case http.StatusBadRequest:
		return problemHandshake
	case http.StatusForbidden:
		return problemCrossSite
	case http.StatusUpgradeRequired:
		return problemUpgrade
	}
	return problemInternal
}

// toProblem returns the problem of a refused subscription.
func toProblem(err error) *httpapi.Problem {
	if f, ok := errors.AsType[*FilterError](err); ok {
		return bad("query."+f.Field, f.Problem)
	}
	typ, detail := problemBroker, "The broker cannot be reached; retry later."
	switch {
	case errors.Is(err, ErrFull):
		typ, detail = problemFull, "The event streams are at their limit, or this caller has half of them. Retry later."
	case errors.Is(err, ErrClosed):
		typ, detail = problemStopping, "The server is stopping."
	}
	p := newProblem(typ, detail)
	p.Header().Set("Retry-After", retryAfter)
	return p
}

// refusalStatus returns the status and the detail of a refused subscription.
func refusalStatus(err error) (int, string) {
	p := toProblem(err)
	if bad, ok := errors.AsType[*FilterError](err); ok {
		p.Detail = bad.Error()
	}
	return p.Status, p.Detail
}
