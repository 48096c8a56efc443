package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/react/delivery"
)

// maxRepeats is the maximum number of deliveries that one request repeats. If a filter
// matches more, the response has a cursor.
const maxRepeats = 1000

type repeatInput struct {
	ID   string `path:"id" format:"uuid"`
	Body struct {
		Reason string `json:"reason,omitempty" maxLength:"2000" doc:"Reason, required unless dry_run; recorded with the delivery and in the audit trail"`
		DryRun bool   `json:"dry_run,omitempty" doc:"Check whether it can be repeated without changing anything"`
	}
}

type repeatOutput struct {
	Body struct {
		DryRun   bool          `json:"dry_run"`
		Delivery delivery.View `json:"delivery" doc:"The current delivery"`
	}
}

type repeatManyInput struct {
	Body repeatManyBody
}

type repeatManyBody struct {
	IDs    []string        `json:"ids,omitempty" nullable:"false" minItems:"1" maxItems:"1000" doc:"The deliveries; alternative to filter"`
	Filter *deliveryFilter `json:"filter,omitempty" doc:"The 1,000 newest deliveries that match"`
	Cursor string          `json:"cursor,omitempty" maxLength:"500" doc:"For a filter: preview.next of the previous response"`
	Reason string          `json:"reason,omitempty" maxLength:"2000" doc:"Reason, required unless dry_run; recorded with the deliveries and in the audit trail"`
	DryRun bool            `json:"dry_run,omitempty" doc:"Return a preview without changing anything"`
}

type deliveryFilter struct {
	Rule   string    `json:"rule,omitempty" maxLength:"60"`
	Plugin string    `json:"plugin,omitempty" maxLength:"200"`
	State  string    `json:"state,omitempty" enum:"failed,delivered" doc:"Default: failed"`
	Event  string    `json:"event_id,omitempty" maxLength:"500"`
	Since  time.Time `json:"since,omitzero" doc:"Deliveries that started at this time or later"`
	Until  time.Time `json:"until,omitzero" doc:"Deliveries that started before this time"`
}

// RepeatPreview is the preview of repeating deliveries. It is exported only for huma.
type RepeatPreview struct {
	delivery.Tally
	Pending    int        `json:"pending" doc:"Skipped, because they are retried automatically"`
	Missing    int        `json:"missing" doc:"Number of ids whose deliveries no longer exist"`
	Next       string     `json:"next,omitempty" doc:"Cursor of the next deliveries, if a filter matches more than 1,000"`
	Oldest     *time.Time `json:"oldest,omitempty" doc:"Start of the oldest delivery"`
	Newest     *time.Time `json:"newest,omitempty"`
	NotRunning []string   `json:"not_running,omitempty" doc:"Rules that no process runs now; their deliveries wait until one does"`
}

type repeatManyOutput struct {
	Body struct {
		DryRun  bool             `json:"dry_run"`
		Preview RepeatPreview    `json:"preview" doc:"State before the change"`
		Result  *delivery.Asking `json:"result,omitempty" doc:"Result; absent for a dry run"`
	}
}

func (ep *deliveryEndpoints) registerRepeats() {
	huma.Register(ep.api, ep.describe(access.Operator, huma.Operation{
		OperationID: "repeat-delivery", Method: http.MethodPost, Path: "/v1/deliveries/{id}/repeat", Summary: "Repeat a delivered or failed delivery",
		Description: "The process that runs the rule repeats it within about a second. The rule is not evaluated again.",
	}, 404, 409), ep.repeatDelivery)
	huma.Register(ep.api, ep.describe(access.Operator, huma.Operation{
		OperationID: "repeat-deliveries", Method: http.MethodPost, Path: "/v1/reactions/repeat", Summary: "Repeat many deliveries",
		Description: "Selects deliveries by ids or by a filter. A filter selects up to 1,000 per request; continue with preview.next as cursor. " +
			"The rules are not evaluated again. The request is idempotent: pending deliveries are skipped.",
	}), ep.repeatDeliveries)
}

func (ep *deliveryEndpoints) repeatDelivery(ctx context.Context, in *repeatInput) (*repeatOutput, error) {
	id, err := eventID(ctx, "path.id", in.ID)
	if err != nil {
		return nil, err
	}
	d, err := ep.store.Read(ctx, id)
	switch {
	case err != nil:
		return nil, ep.toProblem(ctx, err, false)
	case d.State == delivery.Pending:
		return nil, ep.toProblem(ctx, delivery.ErrPending, false)
	}
	out := new(repeatOutput)
	if out.Body.DryRun = in.Body.DryRun; !in.Body.DryRun {
		err = ep.audit.change(ctx, entry{Action: "repeat-delivery", Target: id.String(), Detail: `{"rule":"` + d.Rule + `"}`, Reason: in.Body.Reason},
			func(ctx context.Context, by dlq.Actor) (string, error) {
				d, err = ep.store.Repeat(ctx, id, by.Name, by.Reason)
				return "", err
			})
		if err != nil {
			return nil, ep.toProblem(ctx, err, true)
		}
		ep.changes.repeated(ctx)
	}
	out.Body.Delivery = delivery.ViewOf(d)
	return out, nil
}

func (ep *deliveryEndpoints) repeatDeliveries(ctx context.Context, in *repeatManyInput) (*repeatManyOutput, error) {
	ids, p, err := ep.selected(ctx, &in.Body)
	if err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	out := new(repeatManyOutput)
	out.Body.DryRun, out.Body.Preview = in.Body.DryRun, *p
	if in.Body.DryRun {
		return out, nil
	}
	said := in.Body
	said.IDs, said.Reason = said.IDs[:min(len(said.IDs), auditIDs)], ""
	detail, err := json.Marshal(struct {
		repeatManyBody
		Deliveries int `json:"deliveries"`
	}{said, p.Deliveries})
	if err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	err = ep.audit.change(ctx, entry{Action: "repeat-deliveries", Detail: string(detail), Reason: in.Body.Reason}, func(ctx context.Context, by dlq.Actor) (string, error) {
		result, err := ep.store.RepeatAll(ctx, ids, by.Name, by.Reason)
		out.Body.Result = &result
		return "", err
	})
	if err != nil {
		return nil, ep.toProblem(ctx, err, true)
	}
	ep.changes.repeated(ctx)
	return out, nil
}

// selected returns the deliveries of a request without the pending ones.
func (ep *deliveryEndpoints) selected(ctx context.Context, b *repeatManyBody) ([]gocql.UUID, *RepeatPreview, error) {
	p := &RepeatPreview{Tally: *delivery.NewTally()}
	var ids []gocql.UUID
	add := func(d *delivery.Delivery) {
		if d.State == delivery.Pending {
			p.Pending++
			return
		}
		ids = append(ids, d.ID)
		p.Add(d)
		at := d.CreatedAt
		if p.Oldest == nil || at.Before(*p.Oldest) {
			p.Oldest = &at
		}
		if p.Newest == nil || at.After(*p.Newest) {
			p.Newest = &at
		}
	}
	err := ep.heavily(ctx, func() error {
		switch {
		case (b.Filter == nil) == (b.IDs == nil):
			return invalid(ctx, "body", "required: ids or filter, not both")
		case b.Filter != nil:
			return ep.matching(ctx, b, p, add)
		case b.Cursor != "":
			return invalid(ctx, "body.cursor", "allowed only with a filter")
		}
		named, err := idsOf(ctx, b.IDs)
		if err != nil {
			return err
		}
		found, err := ep.store.ReadAll(ctx, named)
		for _, d := range found {
			add(d)
		}
		p.Missing = len(named) - len(found)
		return err
	})
	if err != nil || p.Deliveries == 0 {
		return ids, p, err
	}
	p.NotRunning, err = ep.notRunning(ctx, p.ByRule)
	return ids, p, err
}

// matching calls add with the deliveries of a filter.
func (ep *deliveryEndpoints) matching(ctx context.Context, b *repeatManyBody, p *RepeatPreview, add func(*delivery.Delivery)) error {
	f := b.Filter
	if err := span(ctx, "body.filter.", f.Since, f.Until); err != nil {
		return err
	}
	filter := delivery.Filter{Rule: f.Rule, Plugin: f.Plugin, State: delivery.State(f.State), Event: f.Event, Since: f.Since, Until: f.Until}
	if f.State == "" {
		filter.State = delivery.Failed
	}
	if b.Cursor != "" {
		if err := readPlace(ctx, "body.cursor", b.Cursor, &filter.After); err != nil {
			return err
		}
	}
	var last delivery.Place
	return ep.store.List(ctx, filter, func(d *delivery.Delivery) error {
		if p.Deliveries+p.Pending == maxRepeats {
			p.Next = cursorOf(last)
			return delivery.ErrStop
		}
		last = d.Place()
		add(d)
		return nil
	})
}

// notRunning returns the rules that no process runs.
func (ep *deliveryEndpoints) notRunning(ctx context.Context, rules map[string]int) (out []string, err error) {
	known, err := ep.reactions.read(ctx)
	for rule := range rules {
		if !slices.ContainsFunc(known, func(r reactionBody) bool { return r.Rule == rule && r.State == delivery.Running }) {
			out = append(out, rule)
		}
	}
	slices.Sort(out)
	return out, err
}
