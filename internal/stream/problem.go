package stream

import (
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// Problem types. They identify the kind of problem and are no addresses.
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

// Problems are those that watching has and orders have not, for the catalogue of a
// server that offers both.
func Problems() []httpapi.ProblemKind {
	return []httpapi.ProblemKind{
		{Type: problemHandshake, Status: http.StatusBadRequest, Meaning: "The request does not open a WebSocket as RFC 6455 wants it.", Do: "Mend the header that detail names; WebSocket libraries do it."},
		{Type: problemUpgrade, Status: http.StatusUpgradeRequired, Meaning: "The path is a WebSocket, and the request does not ask for one.", Do: "Connect with a WebSocket client, or use GET /v1/events/stream."},
		{Type: problemFull, Status: http.StatusTooManyRequests, Meaning: "The event streams are at their limit, or the caller has half of them.", Do: "Come back after Retry-After.", Retry: true},
		{Type: problemBroker, Status: http.StatusServiceUnavailable, Meaning: "The broker cannot be reached, so nothing can be watched.", Do: "Come back after Retry-After.", Retry: true},
	}
}

func newProblem(status int, typ, detail string) *httpapi.Problem {
	p := httpapi.New(status, typ, detail)
	return &p
}

// bad is the problem of one bad parameter.
func bad(location, message string) *httpapi.Problem {
	p := newProblem(http.StatusUnprocessableEntity, problemInvalid, "The request has bad fields; errors names each of them.")
	p.Errors = []*huma.ErrorDetail{{Location: location, Message: message}}
	return p
}

// notLetIn is the problem of a request that the gate refuses.
func notLetIn(err error) *httpapi.Problem {
	e, ok := errors.AsType[*access.Error](err)
	if !ok {
		return newProblem(http.StatusInternalServerError, problemInternal, "Something unexpected happened; the log has the details.")
	}
	p := newProblem(e.Status, e.Type(), e.Detail)
	e.Header(p.Header())
	return p
}

// ofHandshake is the type of what the WebSocket library refuses.
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

// toProblem is the answer to a subscription that was refused.
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

// statusOf is what is said of a subscription that was refused.
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
	return http.StatusServiceUnavailable, "The broker cannot be reached; come back later."
}
