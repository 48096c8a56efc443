package messages

import (
	"context"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
	"github.com/scylla-outbox/scylla-outbox/schedule"
)

type acceptedBody struct {
	ID        string     `json:"id" format:"uuid"`
	State     State      `json:"state" enum:"queued,scheduled" doc:"queued or scheduled, as it was handed in; GET says what has become of it"`
	CreatedAt time.Time  `json:"created_at"`
	DeliverAt *time.Time `json:"deliver_at,omitempty" doc:"When it is due; left out for at once"`
	Self      string     `json:"self" format:"uri-reference"`
}

func newAcceptedBody(a *Accepted) *acceptedBody {
	return &acceptedBody{a.ID.String(), a.State, a.CreatedAt, timeOrNil(a.DeliverAt), pathOf(a.ID)}
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

func pathOf(id gocql.UUID) string { return "/v1/messages/" + id.String() }

type acceptedOutput struct {
	Location string `header:"Location" doc:"Where the message is"`
	Replayed string `header:"Idempotency-Replayed" doc:"true if an earlier request with the same Idempotency-Key had stored it: the answer is that request's"`
	Body     *acceptedBody
}

type resultBody struct {
	Index   int             `json:"index" doc:"Place in the request, from 0"`
	Status  int             `json:"status" doc:"202, or what a request with this message alone would have been answered"`
	Message *acceptedBody   `json:"message,omitempty"`
	Problem *messageProblem `json:"problem,omitempty"`
}

type batchOutput struct {
	Status   int
	Replayed string `header:"Idempotency-Replayed" doc:"true if an earlier request with the same Idempotency-Key had stored some of them, or all: their results are that request's"`
	Body     struct {
		Accepted int          `json:"accepted" doc:"How many are stored"`
		Rejected int          `json:"rejected" doc:"How many are not, or not known to be"`
		Results  []resultBody `json:"results" doc:"One for each message, in the order of the request"`
	}
}

type messageBody struct {
	ID        string       `json:"id" format:"uuid"`
	State     State        `json:"state" enum:"received,scheduled,cancelled,processing,queued,completed,retrying,dlq_pending,dlq_processing,resolved,failed,archived"`
	Topic     string       `json:"topic"`
	Key       string       `json:"key,omitempty"`
	CreatedAt time.Time    `json:"created_at"`
	DeliverAt *time.Time   `json:"deliver_at,omitempty"`
	Record    *recordPlace `json:"record,omitempty" doc:"Where it is, once completed"`
	History   []Step       `json:"history"`
	Note      string       `json:"note,omitempty" doc:"What could not be looked up"`
}

type recordPlace struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}

func newMessageBody(v *View) messageBody {
	b := messageBody{
		ID: v.ID.String(), State: v.State, Topic: v.Topic, Key: v.Key, CreatedAt: v.CreatedAt, DeliverAt: timeOrNil(v.DeliverAt),
		History: v.History, Note: v.Note,
	}
	if v.Record != nil {
		b.Record = &recordPlace{v.Record.Topic, v.Record.Partition, v.Record.Offset}
	}
	return b
}

type messageOutput struct{ Body messageBody }

type listOutput struct {
	Body struct {
		Messages []messageBody `json:"messages" doc:"The next to be delivered first"`
		Next     string        `json:"next,omitempty" doc:"Cursor of the next page; left out at the end. A page may be short, even empty, though more follow."`
	}
}

// The inputs spell their headers out: huma looks into no embedded type that is
// not exported.

type postInput struct {
	client
	IdempotencyKey string `header:"Idempotency-Key" doc:"Makes repeating the request safe: it has its effect once, and is answered as it was the first time, whatever has become of the message since; Idempotency-Replayed says so. What was refused was not stored and is judged anew. Kept for 7 days. 1 to 255 printable ASCII characters."`
	TraceParent    string `header:"traceparent" doc:"W3C trace context; it travels with the message"`
	TraceState     string `header:"tracestate" doc:"W3C trace context"`
	RawBody        []byte `contentType:"application/json"`
}

func (in *postInput) options(ctx context.Context) Options {
	return Options{Client: in.name(ctx), IdempotencyKey: in.IdempotencyKey, TraceParent: in.TraceParent, TraceState: in.TraceState, RequestID: access.RequestIDOf(ctx)}
}

// addressClient is before the address of a client that has no other name.
const addressClient = "address "

// client is who asks: whom the token belongs to, or, where there are no tokens, the address.
type client struct{ address string }

// Resolve remembers the address, and refuses a key that is empty or there twice:
// its caller believes that the request can be repeated.
func (c *client) Resolve(ctx huma.Context) []error {
	c.address = ctx.RemoteAddr()
	if host, _, err := net.SplitHostPort(c.address); err == nil {
		c.address = host
	}
	return httpapi.OneKey(ctx)
}

func (c *client) name(ctx context.Context) string {
	if p, ok := access.From(ctx); ok {
		return p.Name
	}
	return addressClient + c.address
}

type idInput struct {
	ID string `path:"id" format:"uuid" doc:"The message's id"`
}

type listInput struct {
	State  string    `query:"state" enum:"scheduled" required:"true" doc:"scheduled: the others are not kept by state"`
	Topic  string    `query:"topic" doc:"Only those for this topic"`
	Key    string    `query:"key" doc:"Only those with this key"`
	Client string    `query:"client" doc:"Only those that this client handed in: a token's name, or address and the address"`
	From   time.Time `query:"from" doc:"Only those due then or later; all, the overdue too, where it is left out"`
	Until  time.Time `query:"until" doc:"Only those due earlier"`
	Limit  int       `query:"limit" default:"100" minimum:"1" maximum:"1000"`
	Cursor string    `query:"cursor" doc:"next of the page before, with the same other parameters"`
}

// API is a Service over HTTP.
type API struct{ service *Service }

// NewAPI returns the API of a service.
func NewAPI(s *Service) *API { return &API{service: s} }

// Register adds the operations on messages to an API.
func (a *API) Register(h huma.API) {
	cfg := &a.service.cfg
	one, batch := &huma.RequestBody{}, &huma.RequestBody{}
	batchResponses := problems(h, 400, 403, 413, 415, 422, 429, 503)
	huma.Register(h, huma.Operation{
		OperationID: "post-message", Method: http.MethodPost, Path: "/v1/messages", DefaultStatus: http.StatusAccepted,
		Summary:     "Hand in a message",
		Description: "Stores a message for a topic in one write: in the outbox, from where it is published, or, if it is for later, in the schedule.",
		// Base64 and JSON's escapes make a body larger than its message.
		MaxBodyBytes: int64(cfg.MaxMessageBytes)*6 + 4096, RequestBody: one, SkipValidateBody: true,
		Responses: problems(h, 400, 403, 413, 415, 422, 429, 503),
	}, a.post)
	huma.Register(h, huma.Operation{
		OperationID: "post-messages", Method: http.MethodPost, Path: "/v1/messages/batch", DefaultStatus: http.StatusAccepted,
		Summary: "Hand in up to 1,000 messages",
		Description: "Each is stored on its own, with a result of its own: 202 if all were, 207 if some were not. " +
			"With an Idempotency-Key the same batch can be sent again until all are stored.",
		MaxBodyBytes: cfg.MaxBatchBytes, RequestBody: batch, SkipValidateBody: true,
		Responses: batchResponses,
	}, a.postBatch)
	// huma describes the one answer that it knows of.
	some := *batchResponses["202"]
	some.Description = "Some are stored, some are not: each result says"
	batchResponses["207"] = &some
	a.RegisterKept(h)
	describe(h, one, reflect.TypeFor[NewMessage]())
	describe(h, batch, reflect.TypeFor[struct {
		Messages []NewMessage `json:"messages" minItems:"1" maxItems:"1000"`
	}]())
	addExamples(h.OpenAPI())
}

// describe says what a body is: the handlers judge bodies on their own.
func describe(h huma.API, body *huma.RequestBody, t reflect.Type) {
	body.Required = true
	body.Content = map[string]*huma.MediaType{"application/json": {Schema: h.OpenAPI().Components.Schemas.Schema(t, true, "MessageBatch")}}
}

// problems describes the error responses.
func problems(h huma.API, codes ...int) map[string]*huma.Response {
	return httpapi.Describe[messageProblem](h, "MessageProblem", codes...)
}

func (a *API) post(ctx context.Context, in *postInput) (*acceptedOutput, error) {
	if err := a.service.full(); err != nil {
		return nil, a.fail(ctx, "post-message", err, gocql.UUID{}, in.IdempotencyKey != "")
	}
	n, err := decodeMessage(in.RawBody)
	if err != nil {
		a.service.metrics.results.WithLabelValues(resultInvalid).Inc()
		return nil, toProblem(err, gocql.UUID{}, false)
	}
	r, err := a.service.Accept(ctx, n, in.options(ctx))
	if err != nil {
		return nil, a.fail(ctx, "post-message", err, gocql.UUID{}, in.IdempotencyKey != "")
	}
	out := &acceptedOutput{Location: pathOf(r.ID), Body: newAcceptedBody(&r)}
	if r.Replayed {
		out.Replayed = "true"
	}
	return out, nil
}

func (a *API) postBatch(ctx context.Context, in *postInput) (*batchOutput, error) {
	if err := a.service.full(); err != nil {
		return nil, a.fail(ctx, "post-messages", err, gocql.UUID{}, in.IdempotencyKey != "")
	}
	items, err := decodeBatch(in.RawBody)
	if err != nil {
		return nil, toProblem(err, gocql.UUID{}, false)
	}
	keyed := in.IdempotencyKey != ""
	results, err := a.service.AcceptBatch(ctx, items, in.options(ctx))
	if err != nil {
		return nil, a.fail(ctx, "post-messages", err, gocql.UUID{}, keyed)
	}
	out := &batchOutput{Status: http.StatusAccepted}
	out.Body.Results = make([]resultBody, len(results))
	for i := range results {
		r := resultBody{Index: i, Status: http.StatusAccepted}
		if err := results[i].Err; err != nil {
			r.Problem = a.fail(ctx, "post-messages", err, results[i].ID, keyed)
			r.Status, out.Status = r.Problem.Status, http.StatusMultiStatus
			out.Body.Rejected++
		} else {
			r.Message = newAcceptedBody(&results[i].Accepted)
			out.Body.Accepted++
			if results[i].Replayed {
				out.Replayed = "true"
			}
		}
		out.Body.Results[i] = r
	}
	return out, nil
}

// parseID reads a path's id. huma has refused what is no UUID at all.
func parseID(s string) (gocql.UUID, error) {
	id, err := gocql.ParseUUID(s)
	if err != nil {
		return id, toProblem(ErrNotFound, id, false)
	}
	return id, nil
}

func (a *API) get(ctx context.Context, in *idInput) (*messageOutput, error) {
	id, err := parseID(in.ID)
	if err != nil {
		return nil, err
	}
	v, err := a.service.Get(ctx, id)
	if err != nil {
		return nil, a.fail(ctx, "get-message", err, id, false)
	}
	return &messageOutput{newMessageBody(&v)}, nil
}

func (a *API) cancel(ctx context.Context, in *idInput) (*struct{}, error) {
	id, err := parseID(in.ID)
	if err != nil {
		return nil, err
	}
	if err := a.service.Cancel(ctx, id); err != nil {
		p := a.fail(ctx, "cancel-message", err, id, false)
		if p.OutcomeUnknown {
			p.Detail = "It is not known whether the message was taken back; ask again."
		}
		return nil, p
	}
	return nil, nil
}

func (a *API) list(ctx context.Context, in *listInput) (*listOutput, error) {
	now := a.service.cfg.Now()
	// What is overdue waits too.
	after, until := schedule.Position{DeliverAt: in.From}, in.Until
	if in.From.IsZero() {
		after.DeliverAt = now.Add(-schedule.MaxAhead)
	}
	if until.IsZero() {
		until = now.Add(schedule.MaxAhead + time.Minute)
	}
	if in.Cursor != "" {
		var ok bool
		if after, ok = readCursor(in.Cursor); !ok {
			return nil, toProblem(jsonform.Invalid("query.cursor", "is none that a page has ended with"), gocql.UUID{}, false)
		}
	}
	if until.Sub(after.DeliverAt) > 3*schedule.MaxAhead {
		return nil, toProblem(jsonform.Invalid("query.from", "must be at most three years before until"), gocql.UUID{}, false)
	}
	page, next, more, err := a.service.List(ctx, after, schedule.Filter{Until: until, Topic: in.Topic, Key: in.Key, Client: in.Client}, in.Limit)
	if err != nil {
		return nil, a.fail(ctx, "list-messages", err, gocql.UUID{}, false)
	}
	out := &listOutput{}
	out.Body.Messages = make([]messageBody, len(page))
	for i := range page {
		out.Body.Messages[i] = newMessageBody(&page[i])
	}
	if more {
		out.Body.Next = cursor(next)
	}
	return out, nil
}

// A cursor is a time in milliseconds and an id.

func cursor(p schedule.Position) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(p.DeliverAt.UnixMilli(), 10) + "/" + p.ID.String()))
}

func readCursor(s string) (schedule.Position, bool) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	at, id, ok := strings.Cut(string(b), "/")
	ms, err2 := strconv.ParseInt(at, 10, 64)
	u, err3 := gocql.ParseUUID(id)
	return schedule.Position{DeliverAt: time.UnixMilli(ms).UTC(), ID: u}, ok && errors.Join(err, err2, err3) == nil
}

// fail maps an error, and logs it if only the log can explain it.
func (a *API) fail(ctx context.Context, operation string, err error, id gocql.UUID, keyed bool) *messageProblem {
	if httpapi.HungUp(ctx, err) {
		return newProblem(httpapi.StatusHungUp, "about:blank", "The caller has gone.")
	}
	p := toProblem(err, id, keyed)
	if p.Status == http.StatusInternalServerError {
		a.service.cfg.Logger.ErrorContext(ctx, "request failed", "operation", operation, "event_id", id, "err", err)
	}
	return p
}
