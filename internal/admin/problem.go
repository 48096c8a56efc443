package admin

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/requestkeys"
)

// problem is an RFC 9457 problem document with this API's own members.
type problem struct {
	httpapi.Problem
	DeadLetterStatus dlq.Status `json:"dead_letter_status,omitempty" doc:"Status of the dead letter that could not be changed"`
	Hint             string     `json:"hint,omitempty" doc:"Suggested fix"`
	ClaimedUntil     *time.Time `json:"claimed_until,omitempty" doc:"End of the relay's claim"`
	// OutcomeUnknown: the change may have been made or may still be made.
	OutcomeUnknown bool   `json:"outcome_unknown,omitempty" doc:"The change may have been made; check before you retry"`
	RequestID      string `json:"request_id,omitempty" doc:"Id of the request in the log and the audit trail"`
}

// problems are the problems of this API: its own and, of its routes, the problems of
// topics, messages and subscriptions.
var problems = httpapi.Kinds(
	httpapi.TypeNotFound, httpapi.TypeRefused, httpapi.TypeStale, httpapi.TypeNeedsMatch, httpapi.TypeTooManyListeners, httpapi.TypeKeyReuse,
	httpapi.TypeTopicNotFound, httpapi.TypeBroker, httpapi.TypeTooManyReads,
	httpapi.TypeMessageNotFound, httpapi.TypeTooLate, httpapi.TypeNotWaiting, httpapi.TypeOverloaded, httpapi.TypeUnknown,
	httpapi.TypeSubscriptionNotFound, httpapi.TypeLeaseExpired, httpapi.TypeNoSubscriptions,
)

// retryAfter is the Retry-After value in seconds while the database cannot be reached.
const retryAfter = "2"

func newProblem(ctx context.Context, typ, detail string) *problem {
	return &problem{Problem: httpapi.New(typ, detail), RequestID: access.RequestIDOf(ctx)}
}

// invalid returns the problem of one invalid field, in huma's form. It does not repeat
// the value.
func invalid(ctx context.Context, location, message string) *problem {
	return &problem{Problem: httpapi.Invalid(location, message), RequestID: access.RequestIDOf(ctx)}
}

// toProblem is the only place that converts errors to problems. changing reports that the
// request was a change.
func (o *operations) toProblem(ctx context.Context, err error, changing bool) error {
	var p *problem
	var refused *dlq.RefusedError
	var version *dlq.VersionError
	var job *jobs.StateError
	switch {
	case errors.As(err, &p):
		return p
	case errors.Is(err, dlq.ErrNotFound):
		return newProblem(ctx, httpapi.TypeNotFound, "There is no dead letter of this event.")
	case errors.Is(err, dlq.ErrArchive):
		return o.archiveProblem(ctx, err)
	case errors.Is(err, jobs.ErrTooMany):
		return invalid(ctx, "body.by_priority", jobs.ErrTooMany.Error())
	case errors.Is(err, requestkeys.ErrReuse):
		return newProblem(ctx, httpapi.TypeKeyReuse, "This Idempotency-Key belongs to another request. Use a new key for a new request, and the same body for a retry.")
	case errors.Is(err, jobs.ErrNoJob):
		return newProblem(ctx, httpapi.TypeNotFound, "There is no such job.")
	case errors.As(err, &version):
		p = newProblem(ctx, httpapi.TypeStale, "The dead letter has changed; read it again. It is at version "+strconv.FormatInt(version.Have, 10)+".")
		p.Header().Set("ETag", etag(version.Have))
		return p
	case errors.As(err, &refused):
		p = newProblem(ctx, httpapi.TypeRefused, refused.Error())
		p.DeadLetterStatus, p.Hint = refused.Status, refused.Hint
		if refused.Status == dlq.Processing {
			p.ClaimedUntil = when(refused.ClaimedUntil)
		}
		return p
	case errors.As(err, &job):
		return newProblem(ctx, httpapi.TypeRefused, job.Error())
	case httpapi.HungUp(ctx, err):
		p = newProblem(ctx, httpapi.TypeHungUp, "The client has closed the request.")
		p.OutcomeUnknown = changing
		return p
	case defect(err):
		o.log.ErrorContext(ctx, "request failed", "err", err)
		return newProblem(ctx, httpapi.TypeInternal, "Internal error; see the log.")
	}
	if ctx.Err() == nil {
		o.log.WarnContext(ctx, "request failed", "err", err)
	}
	p = newProblem(ctx, httpapi.TypeUnavailable, "The database cannot be reached; retry later.")
	if changing {
		p.Detail, p.OutcomeUnknown = "The database cannot be reached. The change may have been made; check before you retry.", true
	}
	p.Header().Set("Retry-After", retryAfter)
	return p
}

// defect reports whether an error is caused by this program or its configuration, rather
// than by an unreachable database.
func defect(err error) bool {
	switch cqlcode.Of(err) {
	case gocql.ErrCodeInvalid, gocql.ErrCodeSyntax, gocql.ErrCodeUnauthorized, gocql.ErrCodeConfig, gocql.ErrCodeProtocol, gocql.ErrCodeCredentials:
		return true
	}
	var json *json.UnmarshalTypeError
	return errors.Is(err, gocql.ErrSessionClosed) || errors.As(err, &json)
}
