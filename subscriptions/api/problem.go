package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// Problem types. They identify the kind of problem and cannot be resolved.
const (
	problemNotFound    = "urn:scylla-outbox:problem:subscription-not-found"
	problemStale       = "urn:scylla-outbox:problem:stale-version"
	problemUnavailable = "urn:scylla-outbox:problem:subscriptions-unavailable"
	problemExpired     = "urn:scylla-outbox:problem:lease-expired"
	problemReceipt     = "urn:scylla-outbox:problem:invalid-receipt"
	problemUnsettled   = "urn:scylla-outbox:problem:outcome-unknown"
	problemFull        = "urn:scylla-outbox:problem:too-many-waiting"
	problemHandshake   = "urn:scylla-outbox:problem:bad-handshake"
	problemUpgrade     = "urn:scylla-outbox:problem:upgrade-required"
)

// retryAfter is the Retry-After of responses that a retry may change.
const retryAfter = time.Second

// problem is an RFC 9457 problem document with this API's own members.
type problem struct {
	httpapi.Problem
	// Results has an item for each receipt of a request to settle deliveries.
	Results json.RawMessage `json:"results,omitempty" doc:"One for each receipt, in the order of the request"`
	// OutcomeUnknown: the change may have been made or may still be made.
	OutcomeUnknown bool `json:"outcome_unknown,omitempty" doc:"The change may have been made; check before you retry"`
}

func newProblem(status int, typ, detail string) *problem {
	return &problem{Problem: httpapi.New(status, typ, detail)}
}

// catalogue are the problems for /problems and the description of the API.
var catalogue = []httpapi.ProblemKind{
	{Type: problemNotFound, Status: http.StatusNotFound, Meaning: "There is no subscription with that name.", Do: "Check the name; PUT creates it."},
	{Type: problemStale, Status: http.StatusPreconditionFailed, Meaning: "If-Match does not match the version of the subscription.", Do: "Read it, and repeat the change if it still applies."},
	{Type: problemExpired, Status: http.StatusConflict, Meaning: "Some leases have ended: by time, by an earlier action, or because another process owns the partition. Nothing was changed for them.", Do: "Discard the work or make it idempotent: the messages may be delivered again."},
	{Type: problemReceipt, Status: http.StatusUnprocessableEntity, Meaning: "Some receipts are no receipts of this subscription.", Do: "Send the receipt of the message as it is, to the subscription that delivered it."},
	{Type: problemUnsettled, Status: http.StatusServiceUnavailable, Meaning: "Some results are unknown, or their owner is unavailable.", Do: "Repeat the request as it is; confirmed receipts are ok again.", Retry: true},
	{Type: problemUnavailable, Status: http.StatusServiceUnavailable, Meaning: "The database or the broker cannot be reached, or the process is starting or stopping.", Do: "Retry after Retry-After.", Retry: true},
	{Type: problemFull, Status: http.StatusTooManyRequests, Meaning: "As many requests wait for messages as may, or the caller has half of them.", Do: "Retry after Retry-After, or with a shorter wait.", Retry: true},
	{Type: problemHandshake, Status: http.StatusBadRequest, Meaning: "The request is not a valid WebSocket handshake of RFC 6455.", Do: "Fix the header in detail; WebSocket libraries set it correctly."},
	{Type: problemUpgrade, Status: http.StatusUpgradeRequired, Meaning: "The path is a WebSocket, and the request does not ask for one.", Do: "Connect with a WebSocket client."},
	{Type: httpapi.TypeMalformed, Status: http.StatusBadRequest, Meaning: "The body is not JSON.", Do: "Send one JSON object in UTF-8."},
	{Type: httpapi.TypeInvalid, Status: http.StatusUnprocessableEntity, Meaning: "Fields are invalid; errors names each.", Do: "Fix the fields."},
	{Type: httpapi.TypeTooLarge, Status: http.StatusRequestEntityTooLarge, Meaning: "The body is too large.", Do: "Send at most 1,000 receipts in a request."},
	{Type: httpapi.TypeUnauthorized, Status: http.StatusUnauthorized, Meaning: "There is no valid token.", Do: "Send Authorization: Bearer and a token."},
	{Type: httpapi.TypeForbidden, Status: http.StatusForbidden, Meaning: "The token has not the role.", Do: "Use a token with the role in detail."},
	{Type: httpapi.TypeRate, Status: http.StatusTooManyRequests, Meaning: "Too many requests with this token.", Do: "Retry after Retry-After; receive and settle in batches.", Retry: true},
	{Type: httpapi.TypeStopping, Status: http.StatusServiceUnavailable, Meaning: "The process is stopping.", Do: "Retry; a load balancer selects another process.", Retry: true},
}

func (p *problem) at(location, message string) *problem {
	p.Errors = append(p.Errors, &huma.ErrorDetail{Location: location, Message: message})
	return p
}

func (p *problem) later() *problem {
	p.RetryAfter(retryAfter)
	return p
}

// unknown marks the problem of a change whose outcome is not known.
func (p *problem) unknown() *problem {
	p.OutcomeUnknown = p.Type == problemUnavailable
	return p
}

func notFound(name string) *problem {
	return newProblem(http.StatusNotFound, problemNotFound, "There is no subscription "+name+".")
}

// fieldForm is the beginning of an error of a field of a subscription.
var fieldForm = regexp.MustCompile(`^([a-z][a-z_.]*)[ :]+(.+)$`)

// toProblem maps the errors of a subscriptions.Service and of the decoders to HTTP.
func toProblem(ctx context.Context, name string, err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	if syntax, ok := errors.AsType[*jsonform.SyntaxError](err); ok {
		return newProblem(http.StatusBadRequest, httpapi.TypeMalformed, "The "+syntax.Error()+".").at(jsonform.Location(syntax.Field), syntax.Problem)
	}
	if invalid, ok := errors.AsType[*jsonform.InvalidError](err); ok {
		p := invalidFields()
		for _, f := range invalid.Fields {
			p.at(jsonform.Location(f.Field), f.Problem)
		}
		return p
	}
	switch {
	case httpapi.HungUp(ctx, err):
		return newProblem(httpapi.StatusHungUp, "about:blank", "The client has disconnected.")
	case errors.Is(err, subscriptions.ErrNotFound):
		return notFound(name)
	case errors.Is(err, subscriptions.ErrVersion):
		return newProblem(http.StatusPreconditionFailed, problemStale, "The subscription has changed since the version of If-Match; read it again.")
	case errors.Is(err, subscriptions.ErrLeaseEnded):
		return newProblem(http.StatusConflict, problemExpired, "The lease has ended; nothing was changed.")
	case errors.Is(err, subscriptions.ErrUnavailable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return newProblem(http.StatusServiceUnavailable, problemUnavailable, "Subscriptions are unavailable; retry later.").later()
	}
	// By the contract of Service every other error is one of the request's fields.
	p := invalidFields()
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimSpace(line)
		if m := fieldForm.FindStringSubmatch(line); m != nil {
			p.at("body."+m[1], m[2])
		} else {
			p.at("body", line)
		}
	}
	return p
}

func invalidFields() *problem {
	return newProblem(http.StatusUnprocessableEntity, httpapi.TypeInvalid, "The request has invalid fields; see errors.")
}

func accessProblem(err error) *problem {
	e, ok := errors.AsType[*access.Error](err)
	if !ok {
		return newProblem(http.StatusInternalServerError, httpapi.TypeInternal, "Internal error; the log contains the details.")
	}
	p := newProblem(e.Status, e.Type(), e.Detail)
	e.Header(p.Header())
	return p
}
