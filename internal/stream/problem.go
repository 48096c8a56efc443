package stream

import (
	"errors"
	"net/http"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// Problem types. They identify the kind of problem and cannot be resolved.
const (
	problemInvalid   = httpapi.TypeInvalid
	problemHandshake = "urn:scylla-outbox:problem:bad-handshake"
	problemUpgrade   = "urn:scylla-outbox:problem:upgrade-required"
	problemFull      = "urn:scylla-outbox:problem:too-many-watchers"
	problemBroker    = "urn:scylla-outbox:problem:broker-unavailable"
	problemStopping  = httpapi.TypeStopping
	problemCrossSite = httpapi.TypeCrossSite
	problemInternal  = httpapi.TypeInternal
)

// Problems are the problems of event streams beside httpapi.CommonProblems, for the catalogue of
// their server.
func Problems() []httpapi.ProblemKind {
	return []httpapi.ProblemKind{
		{Type: problemHandshake, Status: http.StatusBadRequest, Meaning: "The request is not a valid WebSocket handshake of RFC 6455.", Do: "Fix the header in detail; WebSocket libraries set it correctly."},
		{Type: problemUpgrade, Status: http.StatusUpgradeRequired, Meaning: "The path is a WebSocket, and the request does not ask for one.", Do: "Connect with a WebSocket client, or use GET /v1/events/stream."},
		{Type: problemFull, Status: http.StatusTooManyRequests, Meaning: "The event streams are at their limit, or the caller has half of them.", Do: "Retry after the time in Retry-After.", Retry: true},
		{Type: problemBroker, Status: http.StatusServiceUnavailable, Meaning: "The broker cannot be reached, so events cannot be streamed.", Do: "Retry after the time in Retry-After.", Retry: true},
	}
}

func newProblem(status int, typ, detail string) *httpapi.Problem {
	p := httpapi.New(status, typ, detail)
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
		return newProblem(http.StatusInternalServerError, problemInternal, "Internal error; see the log.")
	}
	p := newProblem(e.Status, e.Type(), e.Detail)
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
	status, detail := statusOf(err)
	typ := problemBroker
	switch {
	case errors.Is(err, ErrFull):
		typ = problemFull
	case errors.Is(err, ErrClosed):
		typ = problemStopping
	}
	p := newProblem(status, typ, detail)
	p.Header().Set("Retry-After", retryAfter)
	return p
}

// statusOf returns the status and the detail of a refused subscription.
func statusOf(err error) (int, string) {
	var bad *FilterError
	switch {
	case errors.As(err, &bad):
		return http.StatusUnprocessableEntity, bad.Error()
	case errors.Is(err, ErrFull):
		return http.StatusTooManyRequests, "The event streams are at their limit, or this caller has half of them. Retry later."
	case errors.Is(err, ErrClosed):
		return http.StatusServiceUnavailable, "The server is stopping."
	}
	return http.StatusServiceUnavailable, "The broker cannot be reached; retry later."
}
