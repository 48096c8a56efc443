package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/react/delivery"
)

type deliveriesInput struct {
	Rule   string    `query:"rule" maxLength:"60" doc:"Deliveries of this rule"`
	State  string    `query:"state" enum:"pending,failed,delivered"`
	Event  string    `query:"event_id" maxLength:"500" doc:"Deliveries of this event"`
	Since  time.Time `query:"since" doc:"Deliveries that began then or later (RFC 3339)"`
	Until  time.Time `query:"until" doc:"Deliveries that began before"`
	Limit  int       `query:"limit" minimum:"1" maximum:"500" default:"50"`
	Cursor string    `query:"cursor" maxLength:"500" doc:"next of the answer before"`
}

type deliveriesOutput struct {
	Body struct {
		Deliveries []delivery.View `json:"deliveries" doc:"The newest first"`
		Next       string          `json:"next,omitempty" doc:"The cursor of those that follow; absent if there are none"`
	}
}

type deliveryInput struct {
	ID string `path:"id" format:"uuid"`
}

type deliveryOutput struct{ Body delivery.View }

type repeatInput struct {
	ID   string `path:"id" format:"uuid"`
	Body struct {
		Reason string `json:"reason,omitempty" maxLength:"2000" doc:"Why; kept with the delivery and in the audit"`
		DryRun bool   `json:"dry_run,omitempty" doc:"Only say whether it can be repeated"`
	}
}

type repeatOutput struct {
	Body struct {
		DryRun   bool          `json:"dry_run"`
		Delivery delivery.View `json:"delivery" doc:"The delivery as it is now"`
	}
}

func (s *Server) registerDeliveries() {
	huma.Register(s.api, s.describe(access.Viewer, huma.Operation{
		OperationID: "list-deliveries", Method: http.MethodGet, Path: "/v1/deliveries", Summary: "List what became of events at the rules of outbox react",
	}), s.listDeliveries)
	huma.Register(s.api, s.describe(access.Viewer, huma.Operation{
		OperationID: "get-delivery", Method: http.MethodGet, Path: "/v1/deliveries/{id}", Summary: "Get a delivery, with its event",
	}, 404), s.getDelivery)
	huma.Register(s.api, s.describe(access.Operator, huma.Operation{
		OperationID: "repeat-delivery", Method: http.MethodPost, Path: "/v1/deliveries/{id}/repeat", Summary: "Have a delivery made again that was delivered or failed",
		Description: "The process that runs the rule sees it within a second. The rule is not asked again whether the event is for it.",
	}, 404, 409), s.repeatDelivery)
}

func (s *Server) listDeliveries(ctx context.Context, in *deliveriesInput) (*deliveriesOutput, error) {
	if err := span(ctx, "query.", in.Since, in.Until); err != nil {
		return nil, err
	}
	f := delivery.Filter{Rule: in.Rule, State: delivery.State(in.State), Event: in.Event, Since: in.Since, Until: in.Until}
	if in.Cursor != "" {
		if err := readCursor(ctx, in.Cursor, &f.After); err != nil {
			return nil, err
		}
		if f.After.CreatedAt.IsZero() {
			return nil, invalid(ctx, "query.cursor", "it is none that this API gave; start without one", in.Cursor)
		}
	}
	out := new(deliveriesOutput)
	out.Body.Deliveries = []delivery.View{}
	var last delivery.Place
	err := s.heavily(ctx, func() error {
		return s.cfg.Deliveries.List(ctx, f, func(d *delivery.Delivery) error {
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
		return nil, s.toProblem(ctx, err, false)
	}
	return out, nil
}

func (s *Server) getDelivery(ctx context.Context, in *deliveryInput) (*deliveryOutput, error) {
	id, err := eventID(ctx, "path.id", in.ID)
	if err != nil {
		return nil, err
	}
	d, err := s.cfg.Deliveries.Read(ctx, id)
	if err != nil {
		return nil, s.toProblem(ctx, err, false)
	}
	return &deliveryOutput{delivery.ViewOf(d)}, nil
}

func (s *Server) repeatDelivery(ctx context.Context, in *repeatInput) (*repeatOutput, error) {
	id, err := eventID(ctx, "path.id", in.ID)
	if err != nil {
		return nil, err
	}
	d, err := s.cfg.Deliveries.Read(ctx, id)
	switch {
	case err != nil:
		return nil, s.toProblem(ctx, err, false)
	case d.State == delivery.Pending:
		return nil, s.toProblem(ctx, delivery.ErrPending, false)
	}
	out := new(repeatOutput)
	if out.Body.DryRun = in.Body.DryRun; !in.Body.DryRun {
		err = s.audit.change(ctx, entry{Action: "repeat-delivery", Target: id.String(), Detail: `{"rule":"` + d.Rule + `"}`, Reason: in.Body.Reason},
			func(ctx context.Context, by dlq.Actor) (string, error) {
				d, err = s.cfg.Deliveries.Repeat(ctx, id, by.Name, by.Reason)
				return "", err
			})
		if err != nil {
			return nil, s.toProblem(ctx, err, true)
		}
	}
	out.Body.Delivery = delivery.ViewOf(d)
	return out, nil
}
