package messages

import (
	"errors"
	"fmt"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/internal/requestkeys"
)

// messageProblem is an RFC 9457 problem document with this API's own members.
type messageProblem struct {
	httpapi.Problem
	// MessageID is the message in question, where there is one.
	MessageID string `json:"message_id,omitempty" format:"uuid" doc:"The message in question"`
	// State is the state of the message, if it is the reason of a refusal.
	State State `json:"state,omitempty" doc:"State of the message, if it is the reason of the refusal"`
	// OutcomeUnknown is true if the message may be stored now or later.
	OutcomeUnknown bool `json:"outcome_unknown,omitempty" doc:"The change may be stored now or later"`
	// Result is what a bulk change made before it failed.
	Result *Changed `json:"result,omitempty" doc:"What a bulk change made before it failed"`
}

// Problem types. httpapi.Kinds describes them.
const (
	problemMalformed   = httpapi.TypeMalformed
	problemInvalid     = httpapi.TypeInvalid
	problemNotFound    = httpapi.TypeMessageNotFound
	problemTooLate     = httpapi.TypeTooLate
	problemNotWaiting  = httpapi.TypeNotWaiting
	problemKeyReuse    = httpapi.TypeKeyReuse
	problemQuota       = httpapi.TypeQuota
	problemOverload    = httpapi.TypeOverloaded
	problemUnavailable = httpapi.TypeUnavailable
	problemUnknown     = httpapi.TypeUnknown
	problemMedia       = httpapi.TypeMedia
	problemInternal    = httpapi.TypeInternal
	problemCrossSite   = httpapi.TypeCrossSite
)

func newProblem(typ, detail string) *messageProblem {
	return &messageProblem{Problem: httpapi.New(typ, detail)}
}

func (p *messageProblem) about(id gocql.UUID) *messageProblem {
	if id != (gocql.UUID{}) {
		p.MessageID = id.String()
	}
	return p
}

func (p *messageProblem) retryAfter(d time.Duration) *messageProblem {
	p.RetryAfter(d)
	return p
}

// toProblem maps the errors of the package to HTTP. keyed reports whether the
// request had an Idempotency-Key; the advice depends on it.
func toProblem(err error, id gocql.UUID, keyed bool) *messageProblem {
	if p, ok := errors.AsType[*messageProblem](err); ok {
		return p
	}
	var (
		syntax      *jsonform.SyntaxError
		invalid     *InvalidError
		quota       *QuotaError
		overloaded  *OverloadedError
		unavailable *UnavailableError
		notWaiting  *NotWaitingError
	)
	switch {
	case errors.As(err, &syntax):
		p := newProblem(problemMalformed, "The "+syntax.Error()+".")
		p.Errors = append(p.Errors, &huma.ErrorDetail{Location: jsonform.Location(syntax.Field), Message: syntax.Problem})
		return p
	case errors.As(err, &invalid):
		p := newProblem(problemInvalid, "The message is invalid; errors lists every invalid field.")
		for _, f := range invalid.Fields {
			p.Errors = append(p.Errors, &huma.ErrorDetail{Location: jsonform.Location(f.Field), Message: f.Problem})
		}
		return p
	case errors.Is(err, ErrNotFound):
		return newProblem(problemNotFound, fmt.Sprintf("There is no message %s, or it is too long ago.", id)).about(id)
	case errors.Is(err, ErrTooLate):
		return newProblem(problemTooLate, "The message is released or published and can no longer be cancelled.").about(id)
	case errors.As(err, &notWaiting):
		p := newProblem(problemNotWaiting, whyNotWaiting(notWaiting.State)).about(id)
		p.State = notWaiting.State
		return p
	case errors.Is(err, requestkeys.ErrReuse):
		return newProblem(problemKeyReuse,
			"This Idempotency-Key belongs to another request. Use a new key for a new request, and the same body for a retry.")
	case errors.As(err, &quota):
		if quota.RetryAfter == 0 {
			return newProblem(problemQuota, "The request exceeds your whole quota; send fewer messages per request.")
		}
		return newProblem(problemQuota, "Your quota is used up; retry later.").retryAfter(quota.RetryAfter)
	case errors.As(err, &overloaded):
		return &messageProblem{Problem: overloaded.Problem()}
	case errors.As(err, &unavailable):
		p := newProblem(problemUnavailable, "The database is unavailable. Nothing was stored; retry later.")
		if errors.As(err, new(*PayloadError)) {
			p.Detail = "The store of large payloads is unavailable. Nothing was stored; retry later."
		}
		if errors.Is(err, registry.ErrUnavailable) {
			p.Detail = "The schema registry is unavailable. Nothing was stored; retry later."
		}
		if unavailable.Unknown {
			p = newProblem(problemUnknown, "The outcome is unknown: read the message before retrying.").about(unavailable.ID)
			if keyed {
				p.Detail = "The outcome is unknown. Retry with the same Idempotency-Key."
			}
			p.OutcomeUnknown = true
		}
		return p.retryAfter(unavailable.RetryAfter)
	}
	// Any other error is a defect; the log contains the text of the error.
	return newProblem(problemInternal, "Internal error; the log contains the details.")
}

// whyNotWaiting returns the reason as a sentence.
func whyNotWaiting(s State) string {
	switch s {
	case Cancelled:
		return "The message is cancelled and cannot be delivered now."
	case Processing, Queued, Completed:
		return "The message is already released or published."
	case Resolved, Archived:
		return "The message was a dead letter and is resolved; it cannot be delivered now."
	default:
		return "The message is a dead letter. Replay the dead letter instead."
	}
}

// types are those beside the ones that every API has.
var types = []string{
	problemNotFound, problemTooLate, problemNotWaiting, problemKeyReuse, problemQuota, problemOverload, problemUnknown,
}
