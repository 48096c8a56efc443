package orders

import (
	"cmp"
	"context"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

type eventsInput struct {
	ID    string `path:"id" format:"uuid" doc:"The order's id"`
	Limit int    `query:"limit" minimum:"1" maximum:"50" default:"20" doc:"Events of a page, at most"`
	httpapi.Page
}

type eventsOutput struct {
	Body eventsBody
}

type eventsBody struct {
	Events []EventSummary `json:"events" nullable:"false" doc:"The newest first"`
	Next   string         `json:"next,omitempty" doc:"Cursor of the next page; absent on the last page"`
}

type previewInput struct {
	ID     string `path:"id" format:"uuid" doc:"The order's id"`
	Change string `query:"change" required:"true" enum:"update,confirm,ship,cancel" doc:"Change to preview"`
}

type previewOutput struct {
	ETag string `header:"ETag" doc:"The order's version, for If-Match of the change"`
	Body Preview
}

// looking adds the operations that show more of one order.
func (a *api) looking(h huma.API) {
	huma.Register(h, access.Needs(access.Viewer, huma.Operation{
		OperationID: "list-order-events", Method: http.MethodGet, Path: "/v1/orders/{id}/events",
		Summary:     "List an order's events",
		Description: "Newest first, until their outbox rows expire. The admin API returns the delivery state of an event by its id.",
		Responses:   problems(h, 404, 422, 429, 500, 503),
	}), a.events)
	huma.Register(h, access.Needs(access.Viewer, huma.Operation{
		OperationID: "preview-order-change", Method: http.MethodGet, Path: "/v1/orders/{id}/preview",
		Summary:     "Preview a change",
		Description: "By the same rules as the change itself, without making it. With the ETag as If-Match the change does that or is refused.",
		Responses:   problems(h, 404, 422, 429, 500, 503),
	}), a.preview)
}

func (a *api) events(ctx context.Context, in *eventsInput) (*eventsOutput, error) {
	id, err := gocql.ParseUUID(in.ID)
	if err != nil {
		return nil, toProblem(ErrNotFound, id, false)
	}
	before, err := strconv.ParseInt(cmp.Or(in.Cursor, "0"), 10, 64)
	if err != nil || before < 0 {
		return nil, toProblem(&InvalidError{Fields: []FieldError{{Field: "query.cursor", Problem: httpapi.ProblemCursor}}}, id, false)
	}
	events, err := a.service.Events(ctx, id, before, in.Limit)
	if err != nil {
		return nil, a.fail(ctx, "list events", err, id, false)
	}
	out := &eventsOutput{Body: eventsBody{Events: events}}
	if n := len(events); n == in.Limit && events[n-1].Version > 1 {
		out.Body.Next = in.Next(strconv.FormatInt(events[n-1].Version, 10))
	}
	return out, nil
}

func (a *api) preview(ctx context.Context, in *previewInput) (*previewOutput, error) {
	id, err := gocql.ParseUUID(in.ID)
	if err != nil {
		return nil, toProblem(ErrNotFound, id, false)
	}
	p, err := a.service.Preview(ctx, id, Change(in.Change))
	if err != nil {
		return nil, a.fail(ctx, "preview", err, id, false)
	}
	return &previewOutput{ETag: etag(p.Version), Body: p}, nil
}

// Register adds the operations on existing orders to the API of another server:
// list, read, events, preview, confirm, ship and cancel. Each operation
// declares its role by access.Needs; the other server enforces it.
func (s *Service) Register(h huma.API) { s.register(h, false) }

// register adds the operations, with create also the operations that make an order or set its content too.
func (s *Service) register(h huma.API, create bool) {
	a := &api{s}
	if create {
		a.writing(h)
	}
	a.handling(h)
	a.looking(h)
	refine(h.OpenAPI())
	addExamples(h.OpenAPI())
}
