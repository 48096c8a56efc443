package admin

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/react/delivery"
)

type deliveriesInput struct {
	Rule   string    `query:"rule" maxLength:"60" doc:"Deliveries of this rule"`
	Plugin string    `query:"plugin" maxLength:"200" doc:"Deliveries to this target or plugin"`
	State  string    `query:"state" enum:"pending,failed,delivered"`
	Event  string    `query:"event_id" maxLength:"500" doc:"Deliveries of this event"`
	Since  time.Time `query:"since" doc:"Deliveries that started at this time or later (RFC 3339)"`
	Until  time.Time `query:"until" doc:"Deliveries that started before this time"`
	Limit  int       `query:"limit" minimum:"1" maximum:"500" default:"50"`
	Cursor string    `query:"cursor" maxLength:"500" doc:"next of the previous response"`
}

type deliveriesOutput struct {
	Body struct {
		Deliveries []delivery.View `json:"deliveries" doc:"Newest first"`
		Next       string          `json:"next,omitempty" doc:"Cursor of the next page; absent on the last page"`
	}
}

type deliveryInput struct {
	ID string `path:"id" format:"uuid"`
}

type deliveryOutput struct{ Body delivery.View }

// deliveryEndpoints list the deliveries of outbox react and repeat them.
type deliveryEndpoints struct {
	*operations
	store     *delivery.Store
	reactions *reactionEndpoints
	audit     *audit
	changes   changeListener
}

func (ep *deliveryEndpoints) register() {
	huma.Register(ep.api, ep.describe(access.Viewer, huma.Operation{
		OperationID: "list-deliveries", Method: http.MethodGet, Path: "/v1/deliveries", Summary: "List the deliveries of outbox react",
	}), ep.list)
	huma.Register(ep.api, ep.describe(access.Viewer, huma.Operation{
		OperationID: "get-delivery", Method: http.MethodGet, Path: "/v1/deliveries/{id}", Summary: "Get a delivery with its event",
	}, 404), ep.get)
	ep.registerRepeats()
}

func (ep *deliveryEndpoints) list(ctx context.Context, in *deliveriesInput) (*deliveriesOutput, error) {
	if err := span(ctx, "query.", in.Since, in.Until); err != nil {
		return nil, err
	}
	f := delivery.Filter{Rule: in.Rule, Plugin: in.Plugin, State: delivery.State(in.State), Event: in.Event, Since: in.Since, Until: in.Until}
	if in.Cursor != "" {
		if err := readPlace(ctx, "query.cursor", in.Cursor, &f.After); err != nil {
			return nil, err
		}
	}
	out := new(deliveriesOutput)
	out.Body.Deliveries = []delivery.View{}
	var last delivery.Place
	err := ep.heavily(ctx, func() error {
		return ep.store.List(ctx, f, func(d *delivery.Delivery) error {
			if len(out.Body.Deliveries) == in.Limit {
				out.Body.Next = cursorOf(last)
				return delivery.ErrStop
			}
			last = d.Place()
			out.Body.Deliveries = append(out.Body.Deliveries, delivery.ViewOf(d))
			return nil
		})
	})
	if err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	return out, nil
}

// readPlace reads the cursor of a list of deliveries.
func readPlace(ctx context.Context, location, cursor string, p *delivery.Place) error {
	if err := readCursor(ctx, location, cursor, p); err != nil {
		return err
	}
	if p.CreatedAt.IsZero() {
		return invalid(ctx, location, "not a cursor of this API; start without a cursor")
	}
	return nil
}

func (ep *deliveryEndpoints) get(ctx context.Context, in *deliveryInput) (*deliveryOutput, error) {
	id, err := eventID(ctx, "path.id", in.ID)
	if err != nil {
		return nil, err
	}
	d, err := ep.store.Read(ctx, id)
	if err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	return &deliveryOutput{delivery.ViewOf(d)}, nil
}
