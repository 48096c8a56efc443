package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// Resharder changes the number of shards of a relay.
type Resharder interface {
	// Relay returns the name of the relay.
	Relay() string
	// Open reads the current number, for a change to another one, which the caller closes.
	// Its errors, and the errors of the change, are *ReshardError.
	Open(ctx context.Context, to int) (Resharding, error)
}

// Resharding is a change of the number of shards of a relay.
type Resharding interface {
	// Plan returns the state that Open read.
	Plan() ReshardPlan
	// Refuse returns an error if instances must be stopped first.
	Refuse() error
	// Run makes the change in the name of an actor.
	Run(ctx context.Context, by string) error
	Close()
}

// ReshardError is an error of a change of the number of shards.
type ReshardError struct {
	// Err is the cause, and Fix the next step, empty for none.
	Err error
	Fix string
	// Refused reports that the change was refused because of the state of the relay.
	Refused bool
}

// Error returns the cause.
func (e *ReshardError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ReshardError) Unwrap() error { return e.Err }

// ReshardPlan is the current number of shards of a relay, and the steps to another one.
type ReshardPlan struct {
	Relay      string   `json:"relay"`
	From       int      `json:"from" doc:"Current number of shards; 0 for a relay that never ran"`
	To         int      `json:"to" doc:"Requested number of shards"`
	Agreed     int      `json:"agreed" doc:"Number in the table relay_sharing; 0 for none. It differs from partitions if a change was interrupted"`
	Topic      string   `json:"topic" doc:"The control topic, which has a partition for each shard"`
	Partitions int      `json:"partitions" doc:"Number of its partitions; 0 without the topic"`
	Members    []string `json:"members" nullable:"false" doc:"Addresses of the instances in the consumer group"`
	Instances  []string `json:"instances" nullable:"false" doc:"Instances whose heartbeats are in the database"`
	Steps      []string `json:"steps" nullable:"false" doc:"Steps of the change; none if the relay has the number already"`
}

// ReshardBody requests another number of shards.
type ReshardBody struct {
	To     int  `json:"to" minimum:"1" maximum:"256" doc:"New number of shards; 1 is one active instance and standbys"`
	From   *int `json:"from,omitempty" minimum:"0" maximum:"256" doc:"from of the dry run: the change is refused if another one came first"`
	DryRun bool `json:"dry_run,omitempty" doc:"Only return the plan"`
}

// ReshardedBody is the result of a request for another number of shards.
type ReshardedBody struct {
	DryRun  bool        `json:"dry_run"`
	Changed bool        `json:"changed" doc:"The number was changed; false for a dry run, and if the relay had it already"`
	Plan    ReshardPlan `json:"plan" doc:"As it was before the change"`
	Refused string      `json:"refused,omitempty" doc:"Of a dry run: why the change is refused at the moment"`
	Hint    string      `json:"hint,omitempty" doc:"What permits the change"`
}

type reshardInput struct {
	Name string `path:"name" maxLength:"249" doc:"Name of the relay (relay.name)"`
	Body ReshardBody
}

type reshardOutput struct{ Body ReshardedBody }

// reshardEndpoints change the number of shards.
type reshardEndpoints struct {
	*operations
	audit     *audit
	resharder Resharder // nil for none
}

func (ep *reshardEndpoints) register() {
	huma.Register(ep.api, ep.describeChange(access.Admin, false, huma.Operation{
		OperationID: "reshard-relay", Method: http.MethodPost, Path: "/v1/relays/{name}/reshard", Summary: "Change the number of shards of a relay whose instances are stopped",
		Description: "409 if an instance runs. The change continues if the client disconnects. After another error repeat the request, with this or another number: no instance works before a change is complete.",
	}, 404, 409), ep.reshard)
}

// reshardTimeout bounds a change. A topic that is deleted and created again needs most of it.
const reshardTimeout = 40 * time.Second

func (ep *reshardEndpoints) reshard(ctx context.Context, in *reshardInput) (*reshardOutput, error) {
	b := &in.Body
	switch {
	case ep.resharder == nil:
		return nil, newProblem(ctx, httpapi.TypeRefused, "This server cannot change the number of shards.")
	case in.Name != ep.resharder.Relay():
		p := newProblem(ctx, httpapi.TypeNotFound, fmt.Sprintf("This server changes the shards of relay %q only.", ep.resharder.Relay()))
		p.Hint = fmt.Sprintf("set relay.name (--relay-name) to %s, or use the server of the other relay", ep.resharder.Relay())
		return nil, p
	}
	change, err := ep.resharder.Open(ctx, b.To)
	if err != nil {
		return nil, ep.reshardProblem(ctx, err, false)
	}
	defer change.Close()
	out := &reshardOutput{ReshardedBody{DryRun: b.DryRun, Plan: change.Plan()}}
	plan := &out.Body.Plan
	if b.DryRun {
		if e, ok := errors.AsType[*ReshardError](change.Refuse()); ok {
			out.Body.Refused, out.Body.Hint = e.Error(), e.Fix
		}
		return out, nil
	}
	if len(plan.Steps) == 0 {
		return out, nil
	}
	e := entry{Action: "reshard-relay", Target: plan.Relay, Detail: fmt.Sprintf(`{"from":%d,"to":%d}`, plan.From, plan.To)}
	err = ep.audit.change(ctx, e, func(ctx context.Context, by dlq.Actor) (string, error) {
		if b.From != nil && *b.From != plan.From {
			p := newProblem(ctx, httpapi.TypeRefused, fmt.Sprintf("The relay has %d shards, not %d: another change came first.", plan.From, *b.From))
			p.Hint = "repeat the dry run, which returns the current number, and decide again"
			return "", p
		}
		if err := change.Refuse(); err != nil {
			return "", ep.refuse(ctx, err)
		}
		// Half of a change stops every instance.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reshardTimeout)
		defer cancel()
		return "", ep.refuse(ctx, change.Run(ctx, by.Name))
	})
	if err != nil {
		return nil, ep.reshardProblem(ctx, err, true)
	}
	out.Body.Changed = true
	return out, nil
}

// refuse converts a refusal to a problem, which the audit trail records as one, and returns
// other errors unchanged.
func (ep *reshardEndpoints) refuse(ctx context.Context, err error) error {
	if e, ok := errors.AsType[*ReshardError](err); ok && e.Refused {
		return ep.reshardProblem(ctx, err, false)
	}
	return err
}

// reshardProblem is toProblem with the text of an error of the broker or the database, which
// names a missing right: only admins receive it.
func (ep *reshardEndpoints) reshardProblem(ctx context.Context, err error, changing bool) error {
	e, ok := errors.AsType[*ReshardError](err)
	if !ok || defect(err) || httpapi.HungUp(ctx, err) {
		return ep.toProblem(ctx, err, changing)
	}
	p := newProblem(ctx, httpapi.TypeRefused, sentence(e.Error()))
	if !e.Refused {
		ep.log.WarnContext(ctx, "failed to change the number of shards", "err", err)
		p = newProblem(ctx, httpapi.TypeUnavailable, sentence(e.Error()))
		p.OutcomeUnknown = changing
		p.Header().Set("Retry-After", retryAfter)
	}
	p.Hint = e.Fix
	return p
}

// sentence returns the text of an error as a sentence, empty for none.
func sentence(text string) string {
	if text == "" {
		return ""
	}
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + strings.TrimSuffix(text[size:], ".") + "."
}
