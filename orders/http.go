package orders

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"reflect"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/gocql/gocql"
)

// links lead from an order to what can be done with it.
type links struct {
	Self   string `json:"self" format:"uri-reference"`
	Cancel string `json:"cancel" format:"uri-reference"`
}

func linksTo(id gocql.UUID) *links {
	self := "/v1/orders/" + id.String()
	return &links{Self: self, Cancel: self + "/cancel"}
}

// orderBody is an order in a response.
type orderBody struct {
	Order
	Links *links `json:"links"`
}

type orderOutput struct {
	Location string `header:"Location" doc:"Where the order is, when it was created"`
	ETag     string `header:"ETag" doc:"The order's version"`
	Replayed string `header:"Idempotency-Replayed" doc:"true if an earlier request with the same Idempotency-Key had begun the change"`
	Body     orderBody
}

func newOutput(o Order) *orderOutput {
	return &orderOutput{ETag: strconv.Quote(strconv.FormatInt(o.Version, 10)), Body: orderBody{Order: o, Links: linksTo(o.ID)}}
}

func (out *orderOutput) replayed(yes bool) *orderOutput {
	if yes {
		out.Replayed = "true"
	}
	return out
}

// The inputs spell their headers out: huma looks into no embedded type that is
// not exported.

type createInput struct {
	ContentType    string `header:"Content-Type" hidden:"true"`
	IdempotencyKey string `header:"Idempotency-Key" doc:"Makes repeating the request safe: it has the effect and the answer of the first. Up to 255 printable ASCII characters."`
	TraceParent    string `header:"traceparent" doc:"W3C trace context; it travels with the event"`
	TraceState     string `header:"tracestate" doc:"W3C trace context"`
	RawBody        []byte `contentType:"application/json"`
}

type getInput struct {
	ID string `path:"id" format:"uuid" doc:"The order's id"`
}

type cancelInput struct {
	ID             string `path:"id" format:"uuid" doc:"The order's id"`
	ContentType    string `header:"Content-Type" hidden:"true"`
	IdempotencyKey string `header:"Idempotency-Key" doc:"Makes repeating the request safe: it has the effect and the answer of the first. Up to 255 printable ASCII characters."`
	TraceParent    string `header:"traceparent" doc:"W3C trace context; it travels with the event"`
	TraceState     string `header:"tracestate" doc:"W3C trace context"`
	RawBody        []byte `contentType:"application/json"`
}

// requireJSON refuses a body that says it is something else.
func requireJSON(contentType string, body []byte) error {
	if contentType == "" || len(body) == 0 {
		return nil
	}
	t, _, err := mime.ParseMediaType(contentType)
	if err == nil && (t == "application/json" || strings.HasPrefix(t, "application/") && strings.HasSuffix(t, "+json")) {
		return nil
	}
	return newProblem(http.StatusUnsupportedMediaType, problemMedia, "Send the body as application/json.")
}

// api are the handlers on a Service.
type api struct {
	service *Service
}

// register adds the order operations to mux and returns the API description.
func (a *api) register(mux *http.ServeMux, maxBody int64) huma.API {
	cfg := huma.DefaultConfig("Orders", "1.0.0")
	cfg.Info.Description = "Stores orders and their events together: each change that succeeds publishes exactly one event."
	// No $schema member in every answer, and no pages that load scripts from elsewhere.
	cfg.CreateHooks = nil
	cfg.DocsPath, cfg.SchemasPath = "", ""
	h := humago.New(mux, cfg)
	h.UseMiddleware(a.observe)

	newOrder, cancellation := &huma.RequestBody{}, &huma.RequestBody{}
	huma.Register(h, huma.Operation{
		OperationID: "create-order", Method: http.MethodPost, Path: "/v1/orders", DefaultStatus: http.StatusCreated,
		Summary:      "Create an order",
		Description:  "Stores the order and its OrderCreated event, both or neither.",
		MaxBodyBytes: maxBody, RequestBody: newOrder, SkipValidateBody: true,
		Responses: problems(h, 400, 413, 415, 422, 503),
	}, a.create)
	huma.Register(h, huma.Operation{
		OperationID: "get-order", Method: http.MethodGet, Path: "/v1/orders/{id}",
		Summary:   "Get an order",
		Responses: problems(h, 404, 422, 503),
	}, a.get)
	huma.Register(h, huma.Operation{
		OperationID: "cancel-order", Method: http.MethodPost, Path: "/v1/orders/{id}/cancel",
		Summary:      "Cancel an order",
		Description:  "Stores an OrderCancelled event and cancels the order. Of several requests one succeeds; the others get 409.",
		MaxBodyBytes: maxBody, RequestBody: cancellation, SkipValidateBody: true,
		Responses: problems(h, 400, 404, 409, 413, 415, 422, 503),
	}, a.cancel)
	describe[NewOrder](h, newOrder, true)
	describe[Cancellation](h, cancellation, false)
	return h
}

// describe says what a body is. The handlers take bodies as they come and judge
// them on their own, so huma has described them as bytes.
func describe[T any](h huma.API, body *huma.RequestBody, required bool) {
	body.Required = required
	body.Content = map[string]*huma.MediaType{
		"application/json": {Schema: h.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[T](), true, "")},
	}
}

// problems describes the error responses. huma would describe them as its own model.
func problems(h huma.API, codes ...int) map[string]*huma.Response {
	schema := h.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[problem](), true, "")
	out := map[string]*huma.Response{}
	for _, code := range codes {
		r := &huma.Response{
			Description: http.StatusText(code),
			Content:     map[string]*huma.MediaType{"application/problem+json": {Schema: schema}},
		}
		if code == http.StatusServiceUnavailable {
			r.Headers = map[string]*huma.Param{"Retry-After": {Schema: &huma.Schema{Type: huma.TypeInteger}, Description: "Seconds to wait"}}
		}
		out[strconv.Itoa(code)] = r
	}
	return out
}

func (a *api) create(ctx context.Context, in *createInput) (*orderOutput, error) {
	keyed := in.IdempotencyKey != ""
	if err := requireJSON(in.ContentType, in.RawBody); err != nil {
		return nil, err
	}
	n, err := decodeOrder(in.RawBody)
	if err := withKey(err, in.IdempotencyKey); err != nil {
		return nil, toProblem(err, gocql.UUID{}, keyed)
	}
	r, err := a.service.Create(ctx, n, WriteOptions{IdempotencyKey: in.IdempotencyKey, TraceParent: in.TraceParent, TraceState: in.TraceState})
	if err != nil {
		return nil, a.fail("create", err, gocql.UUID{}, keyed)
	}
	out := newOutput(r.Order).replayed(r.Replayed)
	out.Location = out.Body.Links.Self
	return out, nil
}

func (a *api) get(ctx context.Context, in *getInput) (*orderOutput, error) {
	id, err := gocql.ParseUUID(in.ID)
	if err != nil {
		return nil, toProblem(ErrNotFound, id, false)
	}
	o, err := a.service.Get(ctx, id)
	if err != nil {
		return nil, a.fail("get", err, id, false)
	}
	return newOutput(o), nil
}

func (a *api) cancel(ctx context.Context, in *cancelInput) (*orderOutput, error) {
	keyed := in.IdempotencyKey != ""
	id, err := gocql.ParseUUID(in.ID)
	if err != nil {
		return nil, toProblem(ErrNotFound, id, keyed)
	}
	if err := requireJSON(in.ContentType, in.RawBody); err != nil {
		return nil, err
	}
	c, err := decodeCancellation(in.RawBody)
	if err := withKey(err, in.IdempotencyKey); err != nil {
		return nil, toProblem(err, id, keyed)
	}
	r, err := a.service.Cancel(ctx, id, c, WriteOptions{IdempotencyKey: in.IdempotencyKey, TraceParent: in.TraceParent, TraceState: in.TraceState})
	if err != nil {
		return nil, a.fail("cancel", err, id, keyed)
	}
	return newOutput(r.Order).replayed(r.Replayed), nil
}

// fail maps an error, and logs it if only the log can explain it.
func (a *api) fail(operation string, err error, id gocql.UUID, keyed bool) error {
	p := toProblem(err, id, keyed)
	var se huma.StatusError
	if errors.As(p, &se) && se.GetStatus() == http.StatusInternalServerError {
		a.service.log.Error("request failed", "operation", operation, "aggregate_id", id, "err", err)
	}
	return p
}

// withKey joins what is wrong with the body and with the key, so that one
// answer names both.
func withKey(err error, key string) error {
	keyErr := validateKey(key)
	var bad *InvalidError
	if keyErr == nil || err != nil && !errors.As(err, &bad) {
		return err
	}
	return mergeInvalid(errors.Join(err, keyErr))
}
