package orders

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// links are the URLs of the operations on an order.
type links struct {
	Self    string `json:"self" format:"uri-reference"`
	Confirm string `json:"confirm" format:"uri-reference"`
	Ship    string `json:"ship" format:"uri-reference"`
	Cancel  string `json:"cancel" format:"uri-reference"`
}

func linksTo(id gocql.UUID) *links {
	self := pathTo(id)
	return &links{Self: self, Confirm: self + "/confirm", Ship: self + "/ship", Cancel: self + "/cancel"}
}

// pathTo returns the path of an order.
func pathTo(id gocql.UUID) string { return "/v1/orders/" + id.String() }

// orderBody is an order in a response. Links is for the description: EncodeJSON writes the links
// of the id.
type orderBody struct {
	Order
	Links *links `json:"links"`
	// payload is Order as JSON; nil if nothing has encoded it yet.
	payload []byte
}

// EncodeJSON adds the links to the JSON of the order, which the event has too.
func (b *orderBody) EncodeJSON() ([]byte, error) {
	payload := b.payload
	if payload == nil {
		var err error
		if payload, err = b.Order.encode(); err != nil {
			return nil, err
		}
	}
	self := pathTo(b.ID)
	out := make([]byte, 0, len(payload)+4*(len(self)+24))
	out = append(append(append(out, payload[:len(payload)-1]...), `,"links":{"self":"`...), self...)
	for _, operation := range [...]string{"confirm", "ship", "cancel"} {
		out = append(append(append(append(out, `","`...), operation...), `":"`...), self...)
		out = append(append(out, '/'), operation...)
	}
	return append(out, `"}}`...), nil
}

type orderOutput struct {
	Location string `header:"Location" doc:"Where the order is, when it was created"`
	ETag     string `header:"ETag" doc:"Version of the order in the body"`
	Replayed string `header:"Idempotency-Replayed" doc:"true if an earlier request with the same Idempotency-Key made or started the change; the body is the order after that request, at the version of ETag, and the order may have changed since"`
	Body     *orderBody
}

// newOutput returns the response with the result of a change, or with an order that was read.
func newOutput(r Result) *orderOutput {
	out := &orderOutput{ETag: etag(r.Order.Version), Body: &orderBody{Order: r.Order, payload: r.payload}}
	if r.Replayed {
		out.Replayed = "true"
	}
	return out
}

// The inputs repeat the headers because huma ignores embedded types that are
// not exported.

type createInput struct {
	IdempotencyKey string `header:"Idempotency-Key" doc:"Makes retries safe: the request takes effect once, and a retry receives the response of the first request with Idempotency-Replayed: true, even if the order has changed since. A refused request stores nothing and is evaluated again. Keys expire after 7 days. 1 to 255 printable ASCII characters without spaces, quoted or not."`
	TraceParent    string `header:"traceparent" doc:"W3C trace context; it travels with the event"`
	TraceState     string `header:"tracestate" doc:"W3C trace context"`
	RawBody        []byte `contentType:"application/json"`
}

// Resolve removes the quotes of a key, and rejects an empty or repeated one: its caller assumes
// that the request can be retried.
func (in *createInput) Resolve(ctx huma.Context) []error {
	in.IdempotencyKey = httpapi.Key(in.IdempotencyKey)
	return httpapi.OneKey(ctx)
}

type getInput struct {
	ID string `path:"id" format:"uuid" doc:"The order's id"`
}

type changeInput struct {
	ID             string `path:"id" format:"uuid" doc:"The order's id"`
	IdempotencyKey string `header:"Idempotency-Key" doc:"Makes retries safe: the request takes effect once, and a retry receives the response of the first request with Idempotency-Replayed: true, even if the order has changed since. A refused request stores nothing and is evaluated again. Keys expire after 7 days. 1 to 255 printable ASCII characters without spaces, quoted or not."`
	TraceParent    string `header:"traceparent" doc:"W3C trace context; it travels with the event"`
	TraceState     string `header:"tracestate" doc:"W3C trace context"`
	httpapi.Precondition
	RawBody []byte `contentType:"application/json"`
}

// Resolve is that of createInput.
func (in *changeInput) Resolve(ctx huma.Context) []error {
	in.IdempotencyKey = httpapi.Key(in.IdempotencyKey)
	return append(in.Precondition.Resolve(ctx), httpapi.OneKey(ctx)...)
}

// api are the handlers on a Service.
type api struct{ service *Service }

// writing adds the operations that set the content of an order.
func (a *api) writing(h huma.API) {
	httpapi.RegisterDecoding[NewOrder](h, false, access.Needs(access.Operator, huma.Operation{
		OperationID: "create-order", Method: http.MethodPost, Path: "/v1/orders", DefaultStatus: http.StatusCreated,
		Summary:      "Create an order",
		Description:  "Stores the order and its OrderCreated event, both or neither.",
		MaxBodyBytes: MaxBodyBytes,
		Responses:    problems(h, 400, 403, 408, 413, 415, 422, 429, 500, 503),
	}), a.create)
	change(a, h, huma.Operation{
		OperationID: "update-order", Method: http.MethodPatch, Path: "/v1/orders/{id}",
		Summary: "Change lines, address or country",
		Description: "Stores an OrderUpdated event and changes the order, which must be placed or confirmed. Omitted fields keep their values; " +
			"lines replaces all lines, and the total is computed from them. If-Match is required.",
		Responses: problems(h, 428),
	}, decodeUpdate, a.service.Update)
}

// handling adds the operations on existing orders.
func (a *api) handling(h huma.API) {
	huma.Register(h, access.Needs(access.Viewer, huma.Operation{
		OperationID: "get-order", Method: http.MethodGet, Path: "/v1/orders/{id}",
		Summary:   "Get an order",
		Responses: problems(h, 404, 422, 429, 500, 503),
	}), a.get)
	huma.Register(h, access.Needs(access.Viewer, huma.Operation{
		OperationID: "list-orders", Method: http.MethodGet, Path: "/v1/orders",
		Summary:     "List a customer's orders",
		Description: "Newest first, by placed_at. For the next page, send next as cursor with the same other parameters.",
		Responses:   problems(h, 422, 429, 500, 503),
	}), a.list)
	change(a, h, huma.Operation{
		OperationID: "confirm-order", Method: http.MethodPost, Path: "/v1/orders/{id}/confirm",
		Summary:     "Confirm an order",
		Description: "Stores an OrderUpdated event with the status confirmed. The order must be placed.",
	}, decodeConfirmation, a.service.Confirm)
	change(a, h, huma.Operation{
		OperationID: "ship-order", Method: http.MethodPost, Path: "/v1/orders/{id}/ship",
		Summary:     "Ship an order",
		Description: "Stores an OrderUpdated event with the status shipped. The order must be confirmed. It can no longer be changed afterwards.",
	}, decodeShipment, a.service.Ship)
	change(a, h, huma.Operation{
		OperationID: "cancel-order", Method: http.MethodPost, Path: "/v1/orders/{id}/cancel",
		Summary:     "Cancel an order",
		Description: "Stores an OrderCancelled event and cancels the order, which must be placed or confirmed. Of several concurrent requests one succeeds; the others receive 409.",
	}, decodeCancellation, a.service.Cancel)
}

// change registers an operation that changes an order: decode reads its body, do
// makes the change.
func change[T any](
	a *api, h huma.API, op huma.Operation,
	decode func([]byte) (T, error), do func(context.Context, gocql.UUID, T, WriteOptions) (Result, error),
) {
	op.MaxBodyBytes = MaxBodyBytes
	needsMatch := op.Responses["428"] != nil
	if op.Responses == nil {
		op.Responses = map[string]*huma.Response{}
	}
	maps.Copy(op.Responses, problems(h, 400, 403, 404, 408, 409, 412, 413, 415, 422, 429, 500, 503))
	httpapi.RegisterDecoding[T](h, !needsMatch, access.Needs(access.Operator, op), func(ctx context.Context, in *changeInput) (*orderOutput, error) {
		keyed := in.IdempotencyKey != ""
		id, err := gocql.ParseUUID(in.ID)
		if err != nil {
			return nil, toProblem(ErrNotFound, id, keyed)
		}
		v, err := decode(in.RawBody)
		versions, matchErr := parseIfMatch(in.IfMatch)
		if err := withHeaders(err, matchErr, validateKey(in.IdempotencyKey)); err != nil {
			return nil, toProblem(err, id, keyed)
		}
		if needsMatch && in.IfMatch == "" {
			return nil, newProblem(problemNeedsMatch,
				"Send If-Match with the ETag of the order, so that concurrent changes are not lost.").about(id)
		}
		r, err := do(ctx, id, v, WriteOptions{
			Client: requestClient(ctx), IdempotencyKey: in.IdempotencyKey, TraceParent: in.TraceParent, TraceState: in.TraceState, IfVersion: versions,
			RequestID: access.RequestIDOf(ctx),
		})
		if err != nil {
			return nil, a.fail(ctx, op.OperationID, err, id, keyed)
		}
		return newOutput(r), nil
	})
}

// problems describes the error responses. huma would describe them as its own model.
func problems(h huma.API, codes ...int) map[string]*huma.Response {
	out := httpapi.Describe[problem](h, "", codes...)
	for _, code := range codes {
		for _, content := range out[strconv.Itoa(code)].Content {
			content.Examples = problemExamples(code)
		}
	}
	return out
}

func (a *api) create(ctx context.Context, in *createInput) (*orderOutput, error) {
	keyed := in.IdempotencyKey != ""
	n, err := decodeOrder(in.RawBody)
	if err := withHeaders(err, validateKey(in.IdempotencyKey)); err != nil {
		return nil, toProblem(err, gocql.UUID{}, keyed)
	}
	r, err := a.service.create(ctx, n, WriteOptions{
		Client: requestClient(ctx), IdempotencyKey: in.IdempotencyKey, TraceParent: in.TraceParent, TraceState: in.TraceState,
		RequestID: access.RequestIDOf(ctx),
	})
	if err != nil {
		return nil, a.fail(ctx, "create", err, gocql.UUID{}, keyed)
	}
	out := newOutput(r)
	out.Location = pathTo(r.Order.ID)
	return out, nil
}

// requestClient returns the principal of the request's token; empty without tokens.
func requestClient(ctx context.Context) string {
	p, _ := access.From(ctx)
	return p.Name
}

func (a *api) get(ctx context.Context, in *getInput) (*orderOutput, error) {
	id, err := gocql.ParseUUID(in.ID)
	if err != nil {
		return nil, toProblem(ErrNotFound, id, false)
	}
	o, err := a.service.Get(ctx, id)
	if err != nil {
		return nil, a.fail(ctx, "get", err, id, false)
	}
	return newOutput(Result{Order: o}), nil
}

// fail maps an error, and logs it if only the log can explain it.
func (a *api) fail(ctx context.Context, operation string, err error, id gocql.UUID, keyed bool) error {
	if httpapi.HungUp(ctx, err) {
		return newProblem(httpapi.TypeHungUp, "The client has disconnected.")
	}
	p := toProblem(err, id, keyed)
	var se huma.StatusError
	if errors.As(p, &se) && se.GetStatus() == http.StatusInternalServerError {
		a.service.log.ErrorContext(ctx, "request failed", "operation", operation, "aggregate_id", id, "err", err)
	}
	return p
}

// withHeaders joins the problems of the body and of the headers into one error.
func withHeaders(err error, headers ...error) error {
	headerErr := errors.Join(headers...)
	var bad *InvalidError
	if headerErr == nil || err != nil && !errors.As(err, &bad) {
		return err
	}
	return mergeInvalid(errors.Join(append([]error{err}, headers...)...))
}
