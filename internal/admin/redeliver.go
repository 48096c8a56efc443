package admin

import (
	"context"
	"errors"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/redeliver"
)

// Redeliverer previews redeliveries; package subscriptions/redeliver implements it.
type Redeliverer interface {
	// Check returns an error with a *jobs.SliceError or subscriptions.ErrNotFound in its chain for a
	// redelivery that is not possible.
	Check(ctx context.Context, r *jobs.Redelivery) error
	// Preview returns the plan of the redelivery. It returns the errors of Check, or an error
	// with jobs.ErrTopics in its chain.
	Preview(ctx context.Context, r *jobs.Redelivery) (*redeliver.Plan, error)
}

// redeliverEndpoints redeliver slices of subscriptions by jobs.
type redeliverEndpoints struct {
	*jobEndpoints
	from Redeliverer // nil refuses them
}

// RedeliverBody is the request of a redelivery.
type RedeliverBody struct {
	jobs.Slice
	Rate   float64 `json:"rate,omitempty" minimum:"0" maximum:"1000000" doc:"Messages per second; 0 means unlimited"`
	Follow string  `json:"follow,omitempty" maxLength:"30" doc:"How long the job waits for the acknowledgements of a batch, such as 30s; default 10m, and 0s does not wait"`
	DryRun bool    `json:"dry_run,omitempty" doc:"Return a preview without creating a job (200)"`
}

type redeliverInput struct {
	Name string `path:"name" pattern:"^[a-zA-Z0-9_-]{1,60}$" doc:"Name of the subscription: letters, digits, - and _, at most 60"`
	OnceInput
	Body RedeliverBody
}

// RedeliverPreviewBody is the response to a dry run, which creates no job.
type RedeliverPreviewBody struct {
	DryRun  bool           `json:"dry_run" doc:"Always true"`
	Preview redeliver.Plan `json:"preview" doc:"What would be delivered. Its period, sent back, selects the same records"`
}

func (ep *redeliverEndpoints) register() {
	huma.Register(ep.api, ep.describeChange(access.Operator, false, huma.Operation{
		OperationID: "redeliver-subscription", Method: http.MethodPost, Path: "/v1/subscriptions/{name}/redeliver", DefaultStatus: http.StatusAccepted,
		Summary: "Deliver settled messages of a key, a filter or a time once more",
		Description: "A job finds the messages, makes a dead letter of the class redelivery of each, and replays these to the subscription alone, one of a key at a time and in order. " +
			"It reads at most 10000000 records in 30 minutes and delivers at most 10000 messages; a preview reads for 20 seconds. Seek moves whole partitions.",
		Responses: map[string]*huma.Response{
			"200": ep.answer("Preview of the effects, for a dry run", reflect.TypeFor[RedeliverPreviewBody]()),
			"202": ep.answer("The job", reflect.TypeFor[JobBody]()),
		},
	}, 404, 409), ep.redeliver)
}

func (ep *redeliverEndpoints) redeliver(ctx context.Context, in *redeliverInput) (*newJobOutput, error) {
	b := &in.Body
	if ep.from == nil {
		return nil, newProblem(ctx, httpapi.TypeRefused, "This process reads no topics.")
	}
	spec := jobs.Spec{Action: dlq.ActionReplay, Rate: b.Rate, Redelivery: &jobs.Redelivery{Subscription: in.Name, Slice: b.Slice}}
	if b.DryRun {
		var plan *redeliver.Plan
		err := ep.heavily(ctx, func() (err error) {
			plan, err = ep.from.Preview(ctx, spec.Redelivery)
			return err
		})
		if err != nil {
			return nil, ep.newSliceProblem(ctx, err)
		}
		return &newJobOutput{Status: http.StatusOK, Body: RedeliverPreviewBody{DryRun: true, Preview: *plan}}, nil
	}
	wait := NewJobBody{JobTarget: JobTarget{Action: spec.Action}, Follow: b.Follow}
	var err error
	if spec.Follow, err = wait.follow(ctx); err != nil {
		return nil, err
	}
	if err := ep.from.Check(ctx, spec.Redelivery); err != nil {
		return nil, ep.newSliceProblem(ctx, err)
	}
	content := struct {
		Subscription string
		RedeliverBody
	}{in.Name, *b}
	return ep.create(ctx, in.IdempotencyKey, content, spec, entry{Action: redeliverSubscription, Target: in.Name}, b)
}

// newSliceProblem converts an error of a Redeliverer.
func (ep *redeliverEndpoints) newSliceProblem(ctx context.Context, err error) error {
	slice, wrong := errors.AsType[*jobs.SliceError](err)
	switch {
	case wrong && slice.Field == "":
		return invalid(ctx, "body", slice.Problem)
	case wrong:
		return invalid(ctx, "body."+slice.Field, slice.Problem)
	case errors.Is(err, subscriptions.ErrNotFound):
		return newProblem(ctx, httpapi.TypeSubscriptionNotFound, "There is no such subscription.")
	case errors.Is(err, jobs.ErrTopics) && !httpapi.HungUp(ctx, err):
		ep.log.WarnContext(ctx, "failed to preview a redelivery", "err", err)
		p := newProblem(ctx, httpapi.TypeBroker, "The topics cannot be read; see the log, and retry later.")
		p.Header().Set("Retry-After", retryAfter)
		return p
	}
	return ep.toProblem(ctx, err, false)
}
