package api

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/wire"
)

// defaultMax is the number of messages of a receive without max.
const defaultMax = 10

// The bodies, for the description.

type receiveInput struct {
	Max               int              `json:"max,omitempty" minimum:"1" maximum:"1000" default:"10" doc:"Maximum number of messages. The response contains the messages that are available, without waiting for more"`
	MaxPerKey         int              `json:"max_per_key,omitempty" minimum:"1" maximum:"1000" default:"1" doc:"Maximum number of consecutive messages of one key. Process and settle them in their order: all but ack returns the later ones to the queue, not counted. They have one lease"`
	Wait              httpapi.Duration `json:"wait,omitempty" default:"0s" doc:"How long to wait for the first message: 0s to 20s"`
	AutoAck           bool             `json:"auto_ack,omitempty" doc:"Acknowledge the messages before they are returned: delivery is then at most once"`
	VisibilityTimeout httpapi.Duration `json:"visibility_timeout,omitempty" doc:"Duration of these leases: 1s to 12h; default: that of the subscription"`
	Consumer          string           `json:"consumer,omitempty" pattern:"^[a-zA-Z0-9._:@-]{1,100}$" doc:"Name of this consumer, such as its host or pod, in leases and status: behind that of its token or, without tokens, its address"`
	Exact             bool             `json:"exact,omitempty" doc:"Add data_base64 and key_base64, the bytes of payload and key, to each message, for clients whose parser changes JSON"`
}

type receiptsInput struct {
	Receipts []string `json:"receipts" minItems:"1" maxItems:"1000"`
}

type nackInput struct {
	Receipts []string         `json:"receipts,omitempty" maxItems:"1000"`
	Delay    httpapi.Duration `json:"delay,omitempty" doc:"Time until the next delivery, 0s to 12h; default: the backoff of the subscription"`
	Reason   string           `json:"reason,omitempty" doc:"Error of the consumer, at most 2,000 bytes"`
	Details  string           `json:"details,omitempty" doc:"Details of the error, such as a stack, at most 16,384 bytes: a dead letter has those of the last failure in its error_chain"`
	Items    []nackItem       `json:"items,omitempty" maxItems:"1000" doc:"Instead of receipts, to set delay and reason for each"`
}

type nackItem struct {
	Receipt string           `json:"receipt"`
	Delay   httpapi.Duration `json:"delay,omitempty"`
	Reason  string           `json:"reason,omitempty"`
	Details string           `json:"details,omitempty"`
}

type extendInput struct {
	Receipts []string         `json:"receipts,omitempty" maxItems:"1000"`
	Delay    httpapi.Duration `json:"delay,omitempty" doc:"End of the lease from now, 1s to 12h; default: the visibility timeout of the subscription"`
	Items    []extendItem     `json:"items,omitempty" maxItems:"1000" doc:"Instead of receipts, to set delay for each"`
}

type extendItem struct {
	Receipt string           `json:"receipt"`
	Delay   httpapi.Duration `json:"delay,omitempty"`
}

type rejectInput struct {
	Receipts []string     `json:"receipts,omitempty" maxItems:"1000"`
	Reason   string       `json:"reason,omitempty" doc:"Error of the dead letter, at most 2,000 bytes"`
	Details  string       `json:"details,omitempty" doc:"Details of the error, such as a stack, at most 16,384 bytes: the error_chain of the dead letter"`
	Items    []rejectItem `json:"items,omitempty" maxItems:"1000" doc:"Instead of receipts, to set reason for each"`
}

type rejectItem struct {
	Receipt string `json:"receipt"`
	Reason  string `json:"reason,omitempty"`
	Details string `json:"details,omitempty"`
}

type messagesBody struct {
	Messages []subscriptions.Message `json:"messages"`
}

type resultsBody struct {
	Results []subscriptions.Result `json:"results" doc:"One for each receipt, in the order of the request; all ok"`
}

// rawOutput is a body that the handler has encoded.
type rawOutput struct {
	ContentType string `header:"Content-Type"`
	Body        []byte
}

// messagesOutput is a body that is encoded while it is written.
type messagesOutput struct {
	ContentType string `header:"Content-Type"`
	Body        func(huma.Context)
}

// maxPooledBody bounds a buffer that is kept for the next response, in bytes.
const maxPooledBody = 1 << 20

// okResponse describes a response that the handler encodes.
func okResponse[T any](s *Server, responses map[string]*huma.Response, description string) map[string]*huma.Response {
	responses["200"] = &huma.Response{Description: description, Content: map[string]*huma.MediaType{
		"application/json": {Schema: s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[T](), true, "")},
	}}
	return responses
}

// registerConsume adds the operations of consumers.
func (s *Server) registerConsume() {
	httpapi.RegisterDecoding[receiveInput](s.api, true, s.needs(access.Consumer, huma.Operation{
		OperationID: "receive", Method: http.MethodPost, Path: "/v1/subscriptions/{name}/receive", Summary: "Receive messages",
		Description: "Leases messages to the caller. Settle each before lease_until, or extend its lease; otherwise it is delivered again. " +
			"Without messages within wait the list is empty.",
		MaxBodyBytes: 64 << 10,
		Responses:    okResponse[messagesBody](s, s.problems(400, 404, 413, 429), "The messages"),
	}), s.receive)
	action[receiptsInput](s, subscriptions.ActionAck, "Acknowledge messages", "The messages are not delivered again.")
	action[nackInput](s, subscriptions.ActionNack, "Report failed deliveries",
		"The messages are delivered again after delay or, after max_receive deliveries, become dead letters.")
	action[extendInput](s, subscriptions.ActionExtend, "Extend leases", "Sets the end of the leases to delay from now.")
	action[rejectInput](s, subscriptions.ActionReject, "Reject messages", "The messages become dead letters immediately.")
	action[receiptsInput](s, subscriptions.ActionRelease, "Return messages",
		"The messages can be delivered again immediately; the deliveries do not count.")
}

// action adds the operation of an action with a body T.
func action[T any](s *Server, a subscriptions.Action, summary, effect string) {
	httpapi.RegisterDecoding[T](s.api, false, s.needs(access.Consumer, huma.Operation{
		OperationID: string(a), Method: http.MethodPost, Path: "/v1/subscriptions/{name}/" + string(a), Summary: summary,
		Description: effect + " 200: every result is ok, and durable. Otherwise the problem document contains results, one for each receipt: " +
			"503 if some are unknown or unavailable (repeat the request as it is), else 422 if some are invalid, else 409 (lease-expired).",
		MaxBodyBytes: maxBody,
		Responses:    okResponse[resultsBody](s, s.problems(400, 404, 409, 413), "Every action is durable"),
	}), func(ctx context.Context, in *bodyInput) (*rawOutput, error) {
		actions, err := decodeSettle(a, in.RawBody)
		if err != nil {
			return nil, s.fail(ctx, in.Name, err)
		}
		results, err := s.settle(ctx, in.Name, actions)
		if err != nil {
			return nil, s.fail(ctx, in.Name, err)
		}
		encoded := wire.AppendResults(append(make([]byte, 0, 16*len(results)+16), `{"results":`...), results)
		if p := findUnsettled(results); p != nil {
			p.Results = json.RawMessage(encoded[len(`{"results":`):])
			return nil, p
		}
		return &rawOutput{"application/json", append(encoded, '}')}, nil
	})
}

// settle applies actions and frees their places in the streams of this instance.
func (s *Server) settle(ctx context.Context, name string, actions []subscriptions.Settle) ([]subscriptions.Result, error) {
	results, err := s.cfg.Service.Settle(ctx, name, actions)
	if err == nil && len(results) != len(actions) {
		err = fmt.Errorf("%d results for %d receipts: %w", len(results), len(actions), subscriptions.ErrUnavailable)
	}
	if err == nil {
		s.streams.freePlaces(actions, results)
	}
	return results, err
}

// findUnsettled returns the problem of results that are not all ok; nil if they are.
func findUnsettled(results []subscriptions.Result) *problem {
	count := map[subscriptions.Code]int{}
	for i := range results {
		if results[i].Code != subscriptions.CodeOK {
			count[results[i].Code]++
		}
	}
	if len(count) == 0 {
		return nil
	}
	expired, invalid := count[subscriptions.CodeLeaseExpired]+count[subscriptions.CodeOutOfOrder], count[subscriptions.CodeInvalid]
	open := -expired - invalid
	for _, n := range count {
		open += n
	}
	switch detail := fmt.Sprintf("%d of %d actions are durable, %d leases have expired or are not the first of their run, %d receipts are invalid, %d results are open; see results.",
		len(results)-expired-invalid-open, len(results), expired, invalid, open); {
	case open > 0:
		return newProblem(problemUnsettled, detail).later()
	case invalid > 0:
		return newProblem(problemReceipt, detail)
	default:
		return newProblem(problemExpired, detail)
	}
}

func (s *Server) receive(ctx context.Context, in *receiveRequest) (*messagesOutput, error) {
	r, exact, err := decodeReceive(in.RawBody)
	if err != nil {
		return nil, s.fail(ctx, in.Name, err)
	}
	if r.Wait > 0 {
		leave, ok := s.waiting.Take(access.Holder(ctx, in.remote))
		if !ok {
			return nil, newProblem(problemFull, "Too many requests wait for messages, or this caller has half of them.").later()
		}
		defer leave()
	}
	messages, err := s.take(ctx, in.Name, r, exact)
	if err != nil {
		return nil, s.fail(ctx, in.Name, err)
	}
	return &messagesOutput{"application/json", func(ctx huma.Context) { writeMessages(ctx, messages) }}, nil
}

// bodies are the buffers of responses with messages, *[]byte.
var bodies = sync.Pool{New: func() any { return new([]byte) }}

// writeMessages writes the body of a response.
func writeMessages(ctx huma.Context, messages []subscriptions.Message) {
	buf := bodies.Get().(*[]byte) //nolint:forcetypeassert // the pool has no others
	*buf = wire.AppendMessages((*buf)[:0], messages)
	ctx.SetHeader("Content-Length", strconv.Itoa(len(*buf)))
	_, _ = ctx.BodyWriter().Write(*buf) // a client that has disconnected gets the messages again
	if cap(*buf) <= maxPooledBody {
		bodies.Put(buf)
	}
}

type receiveRequest struct {
	Name    string `path:"name" pattern:"^[a-zA-Z0-9_-]{1,60}$" doc:"Name of the subscription"`
	RawBody []byte `contentType:"application/json"`
	remote  string
}

// Resolve stores the address of the caller.
func (in *receiveRequest) Resolve(ctx huma.Context) []error {
	in.remote = ctx.RemoteAddr()
	return nil
}

// take receives messages, without waiting longer than the server runs. Messages for a
// client that has disconnected are released. exact adds the bytes beside the texts.
func (s *Server) take(ctx context.Context, name string, r subscriptions.Receive, exact bool) ([]subscriptions.Message, error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	r.Consumer = consumer(ctx, r.Consumer)
	if s.stopping.Err() != nil {
		r.Wait, waiting = 0, ctx
	}
	began := s.spans.Now()
	messages, err := s.cfg.Service.Receive(waiting, name, r)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil {
		return nil, nil // the server stops
	}
	if ctx.Err() != nil && len(messages) > 0 && !r.AutoAck {
		s.release(name, messages)
		return nil, ctx.Err()
	}
	s.spans.RecordReceive(ctx, name, began, eachHeaders(messages))
	for i := 0; exact && i < len(messages); i++ {
		messages[i].Event = messages[i].Exact()
	}
	return messages, err
}

// eachHeaders returns the headers of each message.
func eachHeaders(messages []subscriptions.Message) iter.Seq[map[string]string] {
	return func(yield func(map[string]string) bool) {
		for i := range messages {
			if !yield(messages[i].Headers) {
				return
			}
		}
	}
}

// address is the key of the client address in the context of a request without a token.
type address struct{}

// consumer returns the name of a consumer: that of its token or, without tokens, its address,
// and the name that it has given to itself.
func consumer(ctx context.Context, own string) string {
	name := principal(ctx)
	if name == "" {
		name, _ = ctx.Value(address{}).(string)
	}
	if own != "" {
		name += "/" + own
	}
	return name
}

// releaseTimeout bounds the release of messages that reached no client.
const releaseTimeout = 5 * time.Second

// release returns messages that reached no client. If it fails they are delivered again
// once their leases expire.
func (s *Server) release(name string, messages []subscriptions.Message) {
	actions := make([]subscriptions.Settle, len(messages))
	for i := range messages {
		actions[i] = subscriptions.Settle{Action: subscriptions.ActionRelease, Receipt: messages[i].Receipt}
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	if _, err := s.cfg.Service.Settle(ctx, name, actions); err != nil {
		s.cfg.Logger.Warn("failed to release messages of a disconnected client", "subscription", name, "messages", len(messages), "err", err)
	}
}
