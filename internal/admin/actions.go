package admin

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// actionKind is a change of one dead letter. A change that cannot be undone, such as
// discard, needs the role admin.
type actionKind struct {
	action  dlq.Action
	role    access.Role
	summary string
	do      func(*dlq.Store, context.Context, gocql.UUID, dlq.Actor) error
}

var actions = []actionKind{
	{dlq.ActionReplay, access.Operator, "Replay a dead letter in the order of its aggregate", (*dlq.Store).Replay},
	{dlq.ActionUnblock, access.Operator, "Unblock the later events of its aggregate", (*dlq.Store).Unblock},
	{dlq.ActionSuspend, access.Operator, "Suspend a dead letter: it is not retried until it is replayed", (*dlq.Store).Suspend},
	{dlq.ActionResolve, access.Operator, "Resolve a dead letter that was settled elsewhere", (*dlq.Store).ResolveByHand},
	{dlq.ActionReopen, access.Operator, "Reopen a dead letter that was discarded or resolved by hand: it is suspended and blocks nothing", (*dlq.Store).Reopen},
	{dlq.ActionDiscard, access.Admin, "Discard a dead letter: it is never published", (*dlq.Store).Discard},
}

type actionInput struct {
	EventID string `path:"event_id" format:"uuid"`
	httpapi.Precondition
	Body *struct {
		DryRun bool `json:"dry_run,omitempty" doc:"Return a preview without changing anything"`
	}
}

type actionOutput struct {
	ETag string `header:"ETag" doc:"Version of the dead letter"`
	Body struct {
		Action     dlq.Action    `json:"action"`
		DryRun     bool          `json:"dry_run"`
		Preview    *jobs.Preview `json:"preview,omitempty" doc:"Preview of the effects, for a dry run"`
		DeadLetter Summary       `json:"dead_letter" doc:"The current dead letter"`
	}
}

// actionEndpoints change one dead letter.
type actionEndpoints struct {
	*operations
	store       *dlq.Store
	jobs        *jobs.Store
	deadLetters *deadLetterEndpoints
	audit       *audit
	schemas     *dlq.Schemas
	changes     changeListener
}

func (ep *actionEndpoints) register() {
	for _, a := range actions {
		huma.Register(ep.api, ep.describeChange(a.role, false, huma.Operation{
			OperationID: string(a.action) + "-dead-letter", Method: http.MethodPost, Path: "/v1/dead-letters/{event_id}/" + string(a.action), Summary: a.summary,
		}, 404, 409, 412), func(ctx context.Context, in *actionInput) (*actionOutput, error) { return ep.act(ctx, &a, in) })
	}
}

// expectedVersion returns the version of a dead letter that a header If-Match permits to change; 0 is any.
func (ep *actionEndpoints) expectedVersion(ctx context.Context, id gocql.UUID, header string) (int64, error) {
	match, ok := httpapi.ParseMatch(header)
	if !ok {
		return 0, invalid(ctx, "header.If-Match", httpapi.ProblemMatch)
	}
	versions := match.Versions()
	switch {
	case versions == nil:
		return 0, nil
	case len(versions) == 1:
		return versions[0], nil
	}
	l, err := ep.store.Read(ctx, id)
	if err == nil && !match.Permits(l.Version) {
		err = &dlq.VersionError{EventID: id, Have: l.Version}
	}
	if err != nil {
		return 0, ep.toProblem(ctx, err, false)
	}
	return l.Version, nil
}

func (ep *actionEndpoints) act(ctx context.Context, a *actionKind, in *actionInput) (*actionOutput, error) {
	id, err := eventID(ctx, "path.event_id", in.EventID)
	if err != nil {
		return nil, err
	}
	version, err := ep.expectedVersion(ctx, id, in.IfMatch)
	if err != nil {
		return nil, err
	}
	out := new(actionOutput)
	out.Body.Action, out.Body.DryRun = a.action, in.Body != nil && in.Body.DryRun
	if out.Body.DryRun {
		l, err := ep.store.Read(ctx, id)
		if err == nil && version != 0 && version != l.Version {
			err = &dlq.VersionError{EventID: id, Want: version, Have: l.Version}
		}
		if err == nil {
			err = ep.store.Check(a.action, &l)
		}
		if err != nil {
			return nil, ep.toProblem(ctx, err, false)
		}
		p, _, err := ep.jobs.Preview(ctx, &jobs.Spec{Action: a.action}, []dlq.DeadLetter{l})
		if err != nil {
			return nil, ep.toProblem(ctx, err, false)
		}
		out.Body.Preview = &p
		return ep.with(ctx, out, &l, false)
	}
	err = ep.audit.change(ctx, entry{Action: string(a.action), Target: id.String()}, func(ctx context.Context, by dlq.Actor) (string, error) {
		by.Version = version
		return "", a.do(ep.store, ctx, id, by)
	})
	if err != nil {
		return nil, ep.toProblem(ctx, err, true)
	}
	ep.changes.recordChanged(id)
	l, err := ep.store.Read(ctx, id)
	if err != nil {
		return nil, ep.toProblem(ctx, err, true)
	}
	return ep.with(ctx, out, &l, true)
}

// with adds the dead letter to a response; changed reports that the request has changed
// it.
func (ep *actionEndpoints) with(ctx context.Context, out *actionOutput, l *dlq.DeadLetter, changed bool) (*actionOutput, error) {
	some, err := ep.deadLetters.summaries(ctx, []dlq.DeadLetter{*l}, make(holds))
	if err != nil {
		return nil, ep.toProblem(ctx, err, changed)
	}
	out.ETag, out.Body.DeadLetter = etag(l.Version), some[0]
	return out, nil
}
