package messages

import (
	"context"
	"encoding/base64"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/apiserver"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/schedule"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

type acceptedBody struct {
	ID        string     `json:"id" format:"uuid"`
	State     State      `json:"state" enum:"queued,scheduled" doc:"queued or scheduled at the time of submission; GET returns the current state"`
	CreatedAt time.Time  `json:"created_at"`
	DeliverAt *time.Time `json:"deliver_at,omitempty" doc:"When it is due; absent for immediate delivery"`
	Self      string     `json:"self" format:"uri-reference"`
}

func newAcceptedBody(a *Accepted) *acceptedBody {
	return &acceptedBody{a.ID.String(), a.State, a.CreatedAt, timeOrNil(a.DeliverAt), messagePath(a.ID)}
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// Path is the path below which all operations are.
const Path = "/v1/messages"

func messagePath(id gocql.UUID) string { return Path + "/" + id.String() }

type acceptedOutput struct {
	Location string `header:"Location" doc:"Where the message is"`
	Replayed string `header:"Idempotency-Replayed" doc:"true if an earlier request with the same Idempotency-Key had stored it: the answer is that request's"`
	Body     *acceptedBody
}

type resultBody struct {
	Index   int             `json:"index" doc:"Place in the request, from 0"`
	Status  int             `json:"status" doc:"202, or the status that a request with this message alone would receive"`
	Message *acceptedBody   `json:"message,omitempty"`
	Problem *messageProblem `json:"problem,omitempty"`
}

type batchOutput struct {
	Status   int
	Replayed string `header:"Idempotency-Replayed" doc:"true if an earlier request with the same Idempotency-Key had stored some of them, or all: their results are that request's"`
	Body     struct {
		Accepted int          `json:"accepted" doc:"How many are stored"`
		Rejected int          `json:"rejected" doc:"Number of messages not known to be stored"`
		Results  []resultBody `json:"results" doc:"One for each message, in the order of the request"`
	}
}

type messageBody struct {
	ID            string                   `json:"id" format:"uuid"`
	State         State                    `json:"state" enum:"received,scheduled,cancelled,processing,queued,completed,retrying,dlq_pending,dlq_processing,resolved,failed,archived"`
	Topic         string                   `json:"topic"`
	Key           string                   `json:"key,omitempty"`
	Client        string                   `json:"client,omitempty" doc:"In a list of the operators' API: the client that submitted it, the name of a token, or the word address and the address"`
	CreatedAt     time.Time                `json:"created_at"`
	DeliverAt     *time.Time               `json:"deliver_at,omitempty"`
	Record        *recordPlace             `json:"record,omitempty" doc:"Where it is, once completed"`
	History       []Step                   `json:"history"`
	Subscriptions []subscriptions.Progress `json:"subscriptions,omitempty" doc:"Its state in each subscription of its topic, once completed"`
	Note          string                   `json:"note,omitempty" doc:"The part of the state that could not be read"`
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
		b.Subscriptions = v.Record.Subscriptions
	}
	return b
}

type messageOutput struct{ Body messageBody }

type messagesBody struct {
	Messages []messageBody `json:"messages" doc:"The next to be delivered first"`
	Next     string        `json:"next,omitempty" doc:"Cursor of the next page; absent on the last page. A page can be short or empty even if more follow."`
}

type listOutput struct{ Body messagesBody }

// The inputs repeat the headers because huma ignores embedded types that are
// not exported.

type postInput struct {
	client
	IdempotencyKey string `header:"Idempotency-Key" doc:"Makes retries safe: the request takes effect once, and a retry receives the response of the first request with Idempotency-Replayed: true, even if the message has changed since. A refused request stores nothing and is evaluated again. Keys expire after 7 days. 1 to 255 printable ASCII characters without spaces, quoted or not."`
	TraceParent    string `header:"traceparent" doc:"W3C trace context; it travels with the message"`
	TraceState     string `header:"tracestate" doc:"W3C trace context"`
	RawBody        []byte `contentType:"application/json"`
}

func (in *postInput) options(ctx context.Context) Options {
	return Options{Client: in.name(ctx), IdempotencyKey: httpapi.Key(in.IdempotencyKey), TraceParent: in.TraceParent, TraceState: in.TraceState, RequestID: access.RequestIDOf(ctx)}
}

// addressClient prefixes the address of an unauthenticated client.
const addressClient = "address "

// client is the caller: the principal of the token or, without tokens, the
// address.
type client struct{ address string }

// Resolve stores the address, and rejects an empty or repeated key: its caller
// assumes that the request can be retried.
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
	State        string    `query:"state" enum:"scheduled" default:"scheduled" doc:"Messages in other states are not listed"`
	Topic        string    `query:"topic" doc:"Only messages for this topic"`
	Key          string    `query:"key" doc:"Only messages with this key"`
	Client       string    `query:"client" doc:"Only messages of this client: the name of a token, or the word address and the address"`
	Since        time.Time `query:"since" doc:"Only messages due at this time or later; by default all, including overdue ones"`
	Until        time.Time `query:"until" doc:"Only messages due before this time"`
	CreatedSince time.Time `query:"created_since" doc:"Only messages submitted at this time or later"`
	CreatedUntil time.Time `query:"created_until" doc:"Only messages submitted before this time"`
	Limit        int       `query:"limit" default:"100" minimum:"1" maximum:"1000"`
	httpapi.Page
}

// API is a Service over HTTP.
type API struct{ service *Service }

// NewAPI returns the API of a service.
func NewAPI(s *Service) *API { return &API{service: s} }

// HTTP returns the API of messages for a server. Reads require a viewer, sending a producer of the
// topic, the rest an operator.
func (a *API) HTTP() apiserver.API {
	s := a.service
	return apiserver.API{
		Name: "messages", Title: "Messages", Path: Path,
		Description: "Accepts messages for topics, now or for later, and streams the events of topics.",
		Routes:      []func(huma.API){a.Register}, Problems: types, Guard: s.guard, Ping: s.ready, RetryAfter: s.cfg.RetryAfter,
	}
}

// Register adds the operations on messages to an API.
func (a *API) Register(h huma.API) {
	cfg := &a.service.cfg
	batchResponses := problems(h, 400, 403, 413, 415, 422, 429, 503)
	// Its server requires the role, and post and postBatch the topics of a producer.
	produce := func() map[string]any { return map[string]any{"x-role": access.Producer} }
	httpapi.RegisterDecoding[NewMessage](h, false, huma.Operation{
		Extensions:  produce(),
		OperationID: "post-message", Method: http.MethodPost, Path: "/v1/messages", DefaultStatus: http.StatusAccepted,
		Summary:     "Hand in a message",
		Description: "Stores a message for a topic in one write: in the outbox, from where it is published, or, if it is for later, in the schedule.",
		// Base64 and JSON's escapes make a body larger than its message, by a factor of
		// six at most. Large messages have less, because of the memory.
		MaxBodyBytes:    max(int64(min(cfg.MaxMessageBytes, outbox.MaxEventBytes))*6, int64(cfg.MaxMessageBytes)*2) + 4096,
		BodyReadTimeout: httpapi.DefaultReadTimeout,
		Responses:       problems(h, 400, 403, 413, 415, 422, 429, 503),
	}, a.post)
	httpapi.RegisterDecoding[messageBatch](h, false, huma.Operation{
		Extensions:  produce(),
		OperationID: "post-messages", Method: http.MethodPost, Path: "/v1/messages/batch", DefaultStatus: http.StatusAccepted,
		Summary: "Hand in up to 1,000 messages",
		Description: "Each message is stored separately and has its own result: 202 if all are stored, 207 if some are not. " +
			"With an Idempotency-Key the same batch can be retried until all are stored.",
		MaxBodyBytes: cfg.MaxBatchBytes,
		Responses:    batchResponses,
	}, a.postBatch)
	// huma describes only one success response.
	some := *batchResponses["202"]
	some.Description = "Some messages are stored, some are not; see results"
	batchResponses["207"] = &some
	a.registerKept(h, false)
	describeHeaders(h.OpenAPI().Components.Schemas.Map()["NewMessage"].Properties["headers"])
	addExamples(h.OpenAPI())
}

// describeHeaders describes the names and values of record headers.
func describeHeaders(headers *huma.Schema) {
	headers.Extensions = map[string]any{"propertyNames": map[string]any{"pattern": `^[^\x00-\x1f\x7f-\x9f]+$`, "maxLength": outbox.MaxNameBytes}}
}

// messageBatch is the body of a batch, for the description.
type messageBatch struct {
	Messages []NewMessage `json:"messages" minItems:"1" maxItems:"1000"`
}

// problems describes the error responses.
func problems(h huma.API, codes ...int) map[string]*huma.Response {
	return httpapi.Describe[messageProblem](h, "MessageProblem", codes...)
}

// forbidden returns the problem of a producer that may not send to a topic; nil if it may.
func forbidden(ctx context.Context, topic string) error {
	p, _ := access.From(ctx)
	if err := access.PermitTopic(p, topic); err != nil && topic != "" { // which is refused as missing
		return newProblem(httpapi.TypeForbidden, err.Error())
	}
	return nil
}

func (a *API) post(ctx context.Context, in *postInput) (*acceptedOutput, error) {
	n, err := decodeMessage(in.RawBody)
	if err != nil {
		a.service.metrics.results.WithLabelValues(resultInvalid).Inc()
		return nil, toProblem(err, gocql.UUID{}, false)
	}
	if err := forbidden(ctx, n.Topic); err != nil {
		return nil, err
	}
	r, err := a.service.Accept(ctx, n, in.options(ctx))
	if err != nil {
		return nil, a.fail(ctx, "post-message", err, gocql.UUID{}, in.IdempotencyKey != "")
	}
	out := &acceptedOutput{Location: messagePath(r.ID), Body: newAcceptedBody(&r)}
	if r.Replayed {
		out.Replayed = "true"
	}
	return out, nil
}

func (a *API) postBatch(ctx context.Context, in *postInput) (*batchOutput, error) {
	items, err := decodeBatch(in.RawBody)
	if err != nil {
		return nil, toProblem(err, gocql.UUID{}, false)
	}
	for i := range items {
		if err := forbidden(ctx, items[i].Topic); err != nil {
			return nil, err
		}
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

// parseID parses the id of a path. huma has rejected values that are not UUIDs.
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
			p.Detail = "It is unknown whether the message was cancelled; retry."
		}
		return nil, p
	}
	return nil, nil
}

// list returns the messages of a page, for operators with their clients.
func (a *API) list(ctx context.Context, in *listInput, operators bool) (*listOutput, error) {
	f := ManyFilter{in.Topic, in.Key, in.Client, in.Since, in.Until, in.CreatedSince, in.CreatedUntil}
	many, err := f.many(a.service.cfg.Clock.Now(), true, in.Cursor, "query.since", "query.cursor") // overdue ones wait, too
	if err != nil {
		return nil, toProblem(err, gocql.UUID{}, false)
	}
	page, next, more, err := a.service.List(ctx, many.After, many.Filter, in.Limit)
	if err != nil {
		return nil, a.fail(ctx, "list-messages", err, gocql.UUID{}, false)
	}
	out := &listOutput{}
	out.Body.Messages = make([]messageBody, len(page))
	for i := range page {
		if out.Body.Messages[i] = newMessageBody(&page[i]); operators {
			out.Body.Messages[i].Client = page[i].Client
		}
	}
	if more {
		out.Body.Next = in.Next(formatPosition(next))
	}
	return out, nil
}

// A position is a time in milliseconds and an id.

func formatPosition(p schedule.Position) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strconv.FormatInt(p.DeliverAt.UnixMilli(), 10) + "/" + p.ID.String()))
}

func parsePosition(s string) (schedule.Position, bool) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	at, id, ok := strings.Cut(string(b), "/")
	ms, err2 := strconv.ParseInt(at, 10, 64)
	u, err3 := gocql.ParseUUID(id)
	return schedule.Position{DeliverAt: time.UnixMilli(ms).UTC(), ID: u}, ok && errors.Join(err, err2, err3) == nil
}

// fail maps an error, and logs it if only the log can explain it.
func (a *API) fail(ctx context.Context, operation string, err error, id gocql.UUID, keyed bool) *messageProblem {
	if httpapi.HungUp(ctx, err) {
		return newProblem(httpapi.TypeHungUp, "The client has disconnected.")
	}
	p := toProblem(err, id, keyed)
	if p.Status == http.StatusInternalServerError {
		a.service.cfg.Logger.ErrorContext(ctx, "request failed", "operation", operation, "event_id", id, "err", err)
	}
	return p
}
