package admin

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

type setInput struct {
	EventID string `path:"event_id" format:"uuid"`
	httpapi.Precondition
	Body Labels
}

// Labels is a change of priority and tags.
type Labels struct {
	Priority   *int     `json:"priority,omitempty" minimum:"-100" maximum:"100" doc:"New priority; higher ones are replayed first by jobs with by_priority"`
	AddTags    []string `json:"add_tags,omitempty" nullable:"false" maxItems:"16" doc:"Tags to add: 1 to 64 letters, digits and ._:/=@+-, the first a letter or digit"`
	RemoveTags []string `json:"remove_tags,omitempty" nullable:"false" maxItems:"100"`
}

// change returns the change, or the problem of the field at location.
func (b *Labels) change(ctx context.Context, location string) (*dlq.Labels, error) {
	c := &dlq.Labels{Priority: b.Priority, AddTags: b.AddTags, RemoveTags: b.RemoveTags}
	if err := checkTags(ctx, location+".add_tags", c.AddTags); err != nil {
		return nil, err
	}
	if c.Validate() != nil {
		return nil, invalid(ctx, location, "name a priority, a tag to add or a tag to remove, and no tag twice")
	}
	return c, nil
}

// checkTags returns the problem of tags at location, without their values.
func checkTags(ctx context.Context, location string, tags []string) error {
	if (&dlq.Filter{Tags: tags}).Validate() != nil {
		return invalid(ctx, location, "a tag has 1 to 64 letters, digits and ._:/=@+-, the first a letter or digit; at most 16 are allowed")
	}
	return nil
}

func (ep *actionEndpoints) registerSet() {
	huma.Register(ep.api, ep.describeChange(access.Operator, true, huma.Operation{
		OperationID: "set-dead-letter", Method: http.MethodPost, Path: "/v1/dead-letters/{event_id}/set", Summary: "Set the priority and tags of a dead letter",
	}, 404, 409, 412), ep.set)
}

func (ep *actionEndpoints) set(ctx context.Context, in *setInput) (*actionOutput, error) {
	id, err := eventID(ctx, "path.event_id", in.EventID)
	if err != nil {
		return nil, err
	}
	version, err := ep.expectedVersion(ctx, id, in.IfMatch)
	if err != nil {
		return nil, err
	}
	c, err := in.Body.change(ctx, "body")
	if err != nil {
		return nil, err
	}
	detail, err := json.Marshal(c)
	if err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	err = ep.audit.change(ctx, entry{Action: string(dlq.ActionSet), Target: id.String(), Detail: string(detail)}, func(ctx context.Context, by dlq.Actor) (string, error) {
		by.Version = version
		return "", ep.store.Set(ctx, id, *c, by)
	})
	if err != nil {
		return nil, ep.toProblem(ctx, err, true)
	}
	ep.changes.recordChanged(id)
	l, err := ep.store.Read(ctx, id)
	if err != nil {
		return nil, ep.toProblem(ctx, err, true)
	}
	out := new(actionOutput)
	out.Body.Action = dlq.ActionSet
	return ep.with(ctx, out, &l, true)
}
