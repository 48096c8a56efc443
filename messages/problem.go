package messages

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
)

// messageProblem is an RFC 9457 problem document with this API's own members.
type messageProblem struct {
	httpapi.Problem
	// MessageID is the message in question, where there is one.
	MessageID string `json:"message_id,omitempty" format:"uuid" doc:"The message in question"`
	// State is where the message stands, where it is why a change is refused.
	State State `json:"state,omitempty" doc:"Where the message stands, where that is why a change is refused"`
	// OutcomeUnknown: the message may be stored, or become so later.
	OutcomeUnknown bool `json:"outcome_unknown,omitempty" doc:"The change may be stored, or become so later"`
}

// Problem types. They identify the kind of problem and are no addresses.
const (
	problemMalformed   = httpapi.TypeMalformed
	problemInvalid     = httpapi.TypeInvalid
	problemNotFound    = "urn:scylla-outbox:problem:message-not-found"
	problemTooLate     = "urn:scylla-outbox:problem:message-too-late"
	problemNotWaiting  = "urn:scylla-outbox:problem:message-not-waiting"
	problemKeyReuse    = "urn:scylla-outbox:problem:idempotency-key-reuse"
	problemQuota       = "urn:scylla-outbox:problem:quota-used-up"
	problemOverload    = "urn:scylla-outbox:problem:overloaded"
	problemUnavailable = httpapi.TypeUnavailable
	problemUnknown     = "urn:scylla-outbox:problem:outcome-unknown"
	problemMedia       = httpapi.TypeMedia
	problemInternal    = httpapi.TypeInternal
	problemCrossSite   = httpapi.TypeCrossSite
)

func newProblem(status int, typ, detail string) *messageProblem {
	return &messageProblem{Problem: httpapi.New(status, typ, detail)}
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

// toProblem is the one place where the package's errors become HTTP. keyed says
// whether the request had an Idempotency-Key, which decides about the advice.
func toProblem(err error, id gocql.UUID, keyed bool) *messageProblem {
	if p, ok := errors.AsType[*messageProblem](err); ok {
		return p
	}
	var (
		syntax      *jsonform.SyntaxError
		invalid     *InvalidError
		reuse       *KeyReuseError
		quota       *QuotaError
		overloaded  *OverloadedError
		unavailable *UnavailableError
		notWaiting  *NotWaitingError
	)
	switch {
	case errors.As(err, &syntax):
		p := newProblem(http.StatusBadRequest, problemMalformed, "The "+syntax.Error()+".")
		p.Errors = append(p.Errors, &huma.ErrorDetail{Location: jsonform.Location(syntax.Field), Message: syntax.Problem})
		return p
	case errors.As(err, &invalid):
		p := newProblem(http.StatusUnprocessableEntity, problemInvalid, "The message cannot be taken; errors names every field that is wrong.")
		for _, f := range invalid.Fields {
			p.Errors = append(p.Errors, &huma.ErrorDetail{Location: jsonform.Location(f.Field), Message: f.Problem})
		}
		return p
	case errors.Is(err, ErrNotFound):
		return newProblem(http.StatusNotFound, problemNotFound, fmt.Sprintf("There is no message %s, or it is too long ago.", id)).about(id)
	case errors.Is(err, ErrTooLate):
		return newProblem(http.StatusConflict, problemTooLate, "The message is in the outbox or beyond: it cannot be taken back.").about(id)
	case errors.As(err, &notWaiting):
		p := newProblem(http.StatusConflict, problemNotWaiting, whyNotWaiting(notWaiting.State)).about(id)
		p.State = notWaiting.State
		return p
	case errors.As(err, &reuse):
		return newProblem(http.StatusUnprocessableEntity, problemKeyReuse,
			"This Idempotency-Key belongs to another request. Use a new key for a new request, and the same body for a retry.")
	case errors.As(err, &quota):
		if quota.RetryAfter == 0 {
			return newProblem(http.StatusTooManyRequests, problemQuota, "The request is larger than your quota ever is; send less at once.")
		}
		return newProblem(http.StatusTooManyRequests, problemQuota, "Your quota is used up; ask again later.").retryAfter(quota.RetryAfter)
	case errors.As(err, &overloaded):
		return newProblem(http.StatusTooManyRequests, problemOverload,
			"There is more to do than this service can do at once. This request was not begun; ask again later.").retryAfter(overloaded.RetryAfter)
	case errors.As(err, &unavailable):
		p := newProblem(http.StatusServiceUnavailable, problemUnavailable, "The database cannot be reached. Nothing was stored; ask again later.")
		if unavailable.Unknown {
			p = newProblem(http.StatusServiceUnavailable, problemUnknown, "The outcome is unknown: look at the message before asking again.").about(unavailable.ID)
			if keyed {
				p.Detail = "The outcome is unknown. Ask again with the same Idempotency-Key."
			}
			p.OutcomeUnknown = true
		}
		return p.retryAfter(unavailable.RetryAfter)
	}
	// What is not named above is a defect; the text of the error stays in the log.
	return newProblem(http.StatusInternalServerError, problemInternal, "Something unexpected happened; the log has the details.")
}

// whyNotWaiting says it to people.
func whyNotWaiting(s State) string {
	switch s {
	case Cancelled:
		return "The message was taken back and is never published: it cannot be released."
	case Processing, Queued, Completed:
		return "The message is on its way, or out: there is nothing to release."
	case Resolved, Archived:
		return "The message was a dead letter and is settled: there is nothing to release."
	default:
		return "The message is a dead letter. Its letter can be replayed; there is nothing to release."
	}
}

// Problems are those that messages have and orders have not, for the catalogue of
// a server that offers both.
func Problems() []httpapi.ProblemKind {
	return []httpapi.ProblemKind{
		{Type: problemNotFound, Status: http.StatusNotFound, Meaning: "There is no message with that id, or it is too long ago.", Do: "Check the id."},
		{Type: problemTooLate, Status: http.StatusConflict, Meaning: "The message is in the outbox or beyond, and cannot be taken back.", Do: "Nothing: it is published."},
		{
			Type: problemNotWaiting, Status: http.StatusConflict, Meaning: "The message does not wait for its time, and cannot be released: state says where it stands.",
			Do: "Nothing, if it is on its way or out; replay it where it is a dead letter; hand it in again where it was taken back.",
		},
		{Type: problemQuota, Status: http.StatusTooManyRequests, Meaning: "The client has used up what it may send.", Do: "Ask again after Retry-After; without one, send less at once.", Retry: true},
	}
}
