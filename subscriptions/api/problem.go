package api

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// Problem types. httpapi.Kinds describes them.
const (
	problemNotFound    = httpapi.TypeSubscriptionNotFound
	problemStale       = httpapi.TypeStale
	problemUnavailable = httpapi.TypeNoSubscriptions
	problemExpired     = httpapi.TypeLeaseExpired
	problemReceipt     = httpapi.TypeReceipt
	problemUnsettled   = httpapi.TypeUnknown
	problemFull        = httpapi.TypeTooManyWaiting
	problemHandshake   = httpapi.TypeHandshake
	problemUpgrade     = httpapi.TypeUpgrade
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

func newProblem(typ, detail string) *problem {
	return &problem{Problem: httpapi.New(typ, detail)}
}

// problems are the problems of this API.
var problems = httpapi.Kinds(
	problemNotFound, problemStale, problemExpired, problemReceipt, problemUnsettled, problemUnavailable, problemFull, problemHandshake, problemUpgrade,
)

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
	return newProblem(problemNotFound, "There is no subscription "+name+".")
}

// fieldForm is the beginning of an error of a field of a subscription.
var fieldForm = regexp.MustCompile(`^([a-z][a-z_.]*)[ :]+(.+)$`)

// toProblem maps the errors of a subscriptions.Service and of the decoders to HTTP.
func toProblem(ctx context.Context, name string, err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	if syntax, ok := errors.AsType[*jsonform.SyntaxError](err); ok {
		return newProblem(httpapi.TypeMalformed, "The "+syntax.Error()+".").at(jsonform.Location(syntax.Field), syntax.Problem)
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
		return newProblem(httpapi.TypeHungUp, "The client has disconnected.")
	case errors.Is(err, subscriptions.ErrNotFound):
		return notFound(name)
	case errors.Is(err, subscriptions.ErrVersion):
		return newProblem(problemStale, "The subscription has changed since the version of If-Match or of the body, or exists against If-None-Match; read it again.")
	case errors.Is(err, subscriptions.ErrLeaseEnded):
		return newProblem(problemExpired, "The lease has ended; nothing was changed.")
	case errors.Is(err, subscriptions.ErrUnavailable), errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return newProblem(problemUnavailable, "Subscriptions are unavailable; retry later.").later()
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
	return newProblem(httpapi.TypeInvalid, "The request has invalid fields; see errors.")
}

func accessProblem(err error) *problem {
	e, ok := errors.AsType[*access.Error](err)
	if !ok {
		return newProblem(httpapi.TypeInternal, "Internal error; the log contains the details.")
	}
	p := newProblem(e.Type(), e.Detail)
	e.Header(p.Header())
	return p
}
