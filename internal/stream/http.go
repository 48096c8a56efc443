package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// retryAfter is the Retry-After value of a refusal in seconds.
const retryAfter = "5"

// protocol is the negotiated subprotocol; a browser offers its token beside it.
const protocol = "outbox.v1"

// exampleStream is the beginning of an event stream.
const exampleStream = `id: eyJPcmRlckNyZWF0ZWQiOnsiMCI6MTYwM319
event: subscribed
data: {}

id: eyJPcmRlckNyZWF0ZWQiOnsiMCI6MTYwNH19
event: event
data: {"topic":"OrderCreated","partition":0,"offset":1603,"at":"2026-11-21T10:34:07.862Z","key":"01a1fdab-a873-7804-8159-8f6ba00d992c","event_id":"01a1fdab-a873-7807-854b-50e5bdfcfb06","event_type":"OrderCreated","aggregate_id":"01a1fdab-a873-7804-8159-8f6ba00d992c","aggregate_type":"order","sequence":1,"data":{"id":"01a1fdab-a873-7804-8159-8f6ba00d992c","version":1,"status":"placed"}}

`

type streamInput struct {
	Topics      string `query:"topics" doc:"Topics, separated by commas; at most 20. Without topics all allowed topics are followed, including new ones; then event_type or aggregate_id is required"`
	Types       string `query:"event_type" doc:"Only these event types, separated by commas"`
	Aggregate   string `query:"aggregate_id" doc:"Only this aggregate"`
	LastEventID string `header:"Last-Event-ID" doc:"id of the last received event; the stream resumes after it"`
	Cursor      string `query:"cursor" doc:"Same as Last-Event-ID, for clients that cannot set headers"`
}

// Register adds the event stream and the WebSocket to an API.
func (h *Hub) Register(api huma.API) {
	stream := map[string]*huma.Response{"200": {
		Description: "Server-sent events. event: subscribed, event, position (heartbeat), dropped (client reads too slowly) and closed. id is the position after the event.",
		Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}, Example: exampleStream}},
	}}
	huma.Register(api, huma.Operation{
		OperationID: "watch-events", Method: http.MethodGet, Path: "/v1/events/stream", Summary: "Stream events as server-sent events",
		Description: "Streams new events or, with Last-Event-ID, resumes after that event.",
		Responses:   stream, Errors: []int{401, 403, 422, 429, 503},
	}, h.stream)
	huma.Register(api, huma.Operation{
		OperationID: "watch-socket", Method: http.MethodGet, Path: "/v1/events/ws", Summary: "Stream events over a WebSocket",
		Description: `Messages are JSON texts. Send {"type":"subscribe","id":"a","topics":["OrderCreated"],"event_type":[],"aggregate_id":"","resume":""}, ` +
			`{"type":"unsubscribe","id":"a"} or {"type":"ping"}. Without topics all allowed topics are followed, by event_type or aggregate_id. Responses have the type subscribed, event, unsubscribed, dropped, error or pong; position is what resume takes. ` +
			`A browser offers the subprotocols outbox.v1 and bearer.TOKEN.`,
		Responses: map[string]*huma.Response{"101": {Description: "Switching Protocols"}}, Errors: []int{400, 401, 403, 422, 426, 429},
	}, func(context.Context, *struct{}) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: h.socket}, nil
	})
}

// authenticate authenticates a request and returns the holder of its places, and a context with
// the principal. ctx contains that of a middleware.
func (h *Hub) authenticate(ctx context.Context, r *http.Request) (holder string, with context.Context, err error) {
	if h.cfg.Gate == nil {
		return access.Holder(ctx, r.RemoteAddr), ctx, nil
	}
	authorization := access.OrSubprotocol(r.Header.Get("Authorization"), r.Header.Get("Sec-WebSocket-Protocol"))
	p, err := h.cfg.Gate.Authenticate(r.Context(), authorization, r.RemoteAddr)
	if err != nil {
		return "", ctx, err
	}
	return p.Name, access.With(ctx, p), access.Permit(p, access.Viewer)
}

func list(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}

func (h *Hub) stream(_ context.Context, in *streamInput) (*huma.StreamResponse, error) {
	filter := Filter{Topics: list(in.Topics), Types: list(in.Types), Aggregate: in.Aggregate}
	resume, said := in.LastEventID, "header.Last-Event-ID"
	if resume == "" {
		resume, said = in.Cursor, "query.cursor"
	}
	return &huma.StreamResponse{Body: func(ctx huma.Context) {
		r, _ := humago.Unwrap(ctx)
		holder, _, err := h.authenticate(ctx.Context(), r)
		if err != nil {
			httpapi.Answer(ctx, notLetIn(err))
			return
		}
		var from Position
		if resume != "" {
			if from, err = ParsePosition(resume); err != nil {
				httpapi.Answer(ctx, bad(said, err.Error()))
				return
			}
		}
		h.serveStream(ctx, holder, filter, from)
	}}, nil
}

func (h *Hub) serveStream(hctx huma.Context, holder string, filter Filter, from Position) {
	r, w := humago.Unwrap(hctx)
	ctx := r.Context()
	s, err := h.subscribe(ctx, holder, filter, from)
	if err != nil {
		if httpapi.HungUp(ctx, err) {
			httpapi.Answer(hctx, newProblem(httpapi.TypeHungUp, "The client has closed the request."))
			return
		}
		p := toProblem(err)
		if p.Status >= http.StatusInternalServerError {
			h.cfg.Logger.WarnContext(ctx, "failed to subscribe", "topics", filter.Topics, "err", err)
		}
		httpapi.Answer(hctx, p)
		return
	}
	leave := sync.OnceFunc(s.Close)
	defer leave()
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	hctx.SetStatus(http.StatusOK)
	if r.Method == http.MethodHead {
		return // a HEAD request has no body, and its client would never disconnect
	}
	send := func(event string, data []byte) error {
		// Only writers of tests have no deadlines.
		_ = out.SetWriteDeadline(time.Now().Add(h.cfg.WriteTimeout))
		if _, err := fmt.Fprintf(w, "id: %s\nevent: %s\ndata: %s\n\n", s.at, event, data); err != nil {
			return err
		}
		err := out.Flush()
		// HTTP/2 ends a stream at the deadline even if nothing is being written.
		_ = out.SetWriteDeadline(time.Time{})
		return err
	}
	begin, _ := json.Marshal(subscribed{Gaps: s.Gaps}) // numbers and texts are always marshalled
	if send("subscribed", begin) != nil {
		return
	}
	for {
		event, err := s.nextWithin(ctx, h.cfg.Heartbeat)
		if err != nil && !errors.Is(err, errIdle) {
			leave() // its place must be free before the client receives the last message
		}
		switch {
		case err == nil:
			end := s.sending("sse")
			err = send("event", event)
			end(err)
		case errors.Is(err, errIdle):
			err = send("position", []byte("{}"))
		case errors.Is(err, ErrSlow):
			_ = send("dropped", []byte(`{"reason":"too slow"}`))
		case errors.Is(err, ErrClosed):
			_ = send("closed", []byte(`{"reason":"the server is stopping"}`))
		case errors.Is(err, ErrAnew), errors.Is(err, ErrGone), errors.As(err, new(*FilterError)):
			reason, _ := json.Marshal(map[string]string{"reason": err.Error()}) // a text is always marshalled
			_ = send("closed", reason)
		}
		if err != nil {
			return
		}
	}
}

type subscribed struct {
	Gaps []Gap `json:"gaps,omitempty" doc:"Missed events that are no longer in the topics"`
}

// errIdle means that no event arrived within the heartbeat interval.
var errIdle = errors.New("no event")

// nextWithin is Next but returns errIdle after a while.
func (s *Subscription) nextWithin(ctx context.Context, d time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d, errIdle)
	defer cancel()
	return s.Next(ctx)
}
