package api

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/wire"
)

// writeTimeout bounds one write to a stream or socket.
const writeTimeout = 10 * time.Second

// registerStreams adds the event stream and the WebSocket.
func (s *Server) registerStreams() {
	huma.Register(s.api, s.needs(access.Consumer, huma.Operation{
		OperationID: "stream-messages", Method: http.MethodGet, Path: "/v1/subscriptions/{name}/stream", Summary: "Receive messages as server-sent events",
		Description: "Each event is a message with its receipt; settle it by the other operations. At most max messages of the stream are in flight: " +
			"a place is free when this process has settled the message. When a lease ends by its time, the stream is closed.",
		Responses: map[string]*huma.Response{"200": {
			Description: "Server-sent events. event: message, and closed when the server stops; a comment is the heartbeat.",
			Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}},
		}}, Errors: []int{401, 403, 404, 422, 429, 503},
	}), s.stream)
	huma.Register(s.api, s.needs(access.Consumer, huma.Operation{
		OperationID: "consume-socket", Method: http.MethodGet, Path: "/v1/subscriptions/{name}/ws", Summary: "Receive and settle messages over a WebSocket",
		Description: `Messages are JSON texts. Send {"type":"credit","messages":100} to receive up to so many more messages; ` +
			`{"type":"ack","id":"1","receipts":[…]}, and nack, extend, reject, release with the members of the HTTP operation; {"type":"ping","id":"2"}. ` +
			`Responses have the type message, result (status and results as in HTTP), error, pong (at is the server's time) or closed. ` +
			`A browser offers the subprotocols outbox.v1 and bearer.TOKEN.`,
		Responses: map[string]*huma.Response{"101": {Description: "Switching Protocols"}}, Errors: []int{400, 401, 403, 404, 422, 426, 429},
	}), s.socket)
}

type streamInput struct {
	Name     string `path:"name" pattern:"^[a-zA-Z0-9_-]{1,60}$" doc:"Name of the subscription"`
	Max      int    `query:"max" minimum:"1" maximum:"1000" default:"10" doc:"Messages of this stream that may be in flight"`
	Consumer string `query:"consumer" pattern:"^[a-zA-Z0-9._:@-]{1,100}$" doc:"Name of this consumer in leases and status, as consumer of receive"`
	AutoAck  bool   `query:"auto_ack" doc:"Acknowledge each message before it is sent: delivery is then at most once"`
	Exact    bool   `query:"exact" doc:"Add data_base64 and key_base64, the bytes of payload and key, to each message; data_base64 is always there beside data that has line breaks"`
}

func (s *Server) stream(ctx context.Context, in *streamInput) (*huma.StreamResponse, error) {
	if _, err := s.cfg.Service.Get(ctx, in.Name); err != nil {
		return nil, s.fail(ctx, in.Name, err)
	}
	return &huma.StreamResponse{Body: func(hctx huma.Context) {
		leave, ok := s.waiting.Take(access.Holder(hctx.Context(), hctx.RemoteAddr()))
		if !ok {
			httpapi.Answer(hctx, newProblem(problemFull, "Too many streams wait for messages, or this caller has half of them.").later())
			return
		}
		defer leave()
		s.serveStream(hctx, in)
	}}, nil
}

func (s *Server) serveStream(hctx huma.Context, in *streamInput) {
	r, w := humago.Unwrap(hctx)
	ctx := hctx.Context()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	hctx.SetStatus(http.StatusOK)
	if r.Method == http.MethodHead {
		return // a HEAD request has no body, and its client would never disconnect
	}
	out := http.NewResponseController(w)
	send := func(format string, args ...any) error {
		_ = out.SetWriteDeadline(time.Now().Add(writeTimeout)) // only writers of tests have no deadlines
		_, err := fmt.Fprintf(w, format, args...)
		if err == nil {
			err = out.Flush()
		}
		_ = out.SetWriteDeadline(time.Time{}) // HTTP/2 ends a stream at the deadline
		return err
	}
	if send(": open\n\n") != nil {
		return
	}
	open := s.streams.open(in.Max)
	defer s.streams.close(open)
	for ctx.Err() == nil {
		free, expired := open.wait(ctx, s.stopping, s.cfg.Heartbeat)
		if expired { // it does not read, or does not settle
			_ = send("event: closed\ndata: {\"reason\":\"a lease of the stream has expired\"}\n\n")
			return
		}
		var messages []subscriptions.Message
		var err error
		if free > 0 {
			messages, err = s.take(ctx, in.Name, subscriptions.Receive{Max: free, Wait: min(s.cfg.Heartbeat, subscriptions.MaxWait), AutoAck: in.AutoAck, Consumer: in.Consumer}, in.Exact)
		}
		switch {
		case ctx.Err() != nil:
			return
		case s.stopping.Err() != nil && len(messages) == 0:
			_ = send("event: closed\ndata: {\"reason\":\"the server is stopping\"}\n\n")
			return
		case err != nil:
			_ = send("event: closed\ndata: %s\n\n", reason(s.fail(ctx, in.Name, err).Detail))
			return
		case len(messages) == 0:
			if send(": heartbeat\n\n") != nil {
				return
			}
		}
		s.streams.add(open, messages)
		for i := range messages {
			if send("event: message\ndata: %s\n\n", wire.AppendLine(nil, &messages[i])) != nil {
				if !in.AutoAck {
					s.release(in.Name, messages[i:])
				}
				return
			}
		}
	}
}

// streams are the open event streams of a server.
type streams struct {
	mu struct {
		sync.Mutex
		of map[string]*window // by receipt
	}
}

// window bounds the messages of a stream that are in flight.
type window struct {
	freed chan struct{} // has a value when a place became free

	mu struct {
		sync.Mutex
		max    int
		leases map[string]time.Time // ends by receipt
	}
}

func (s *streams) open(most int) *window {
	w := &window{freed: make(chan struct{}, 1)}
	w.mu.max, w.mu.leases = most, map[string]time.Time{}
	return w
}

func (s *streams) close(w *window) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	for receipt := range w.mu.leases {
		delete(s.mu.of, receipt)
	}
}

// freePlaces frees the places of receipts whose deliveries have ended, and moves the ends of
// extended ones. Its cost does not depend on the number of streams.
func (s *streams) freePlaces(actions []subscriptions.Settle, results []subscriptions.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.mu.of) == 0 {
		return
	}
	for i := range actions {
		w := s.mu.of[actions[i].Receipt]
		if w == nil {
			continue
		}
		switch code := results[i].Code; {
		case code == subscriptions.CodeOK && actions[i].Action == subscriptions.ActionExtend:
			w.extend(actions[i].Receipt, results[i].LeaseUntil)
		case code == subscriptions.CodeOK, code == subscriptions.CodeLeaseExpired:
			delete(s.mu.of, actions[i].Receipt)
			w.freePlace(actions[i].Receipt)
		}
	}
}

func (w *window) extend(receipt string, until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.leases[receipt] = until
}

func (w *window) freePlace(receipt string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.mu.leases, receipt)
	select {
	case w.freed <- struct{}{}:
	default:
	}
}

// add takes a place for each message that has a lease.
func (s *streams) add(w *window, messages []subscriptions.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if s.mu.of == nil {
		s.mu.of = make(map[string]*window)
	}
	for i := range messages {
		if r := messages[i].Receipt; r != "" {
			w.mu.leases[r], s.mu.of[r] = messages[i].LeaseUntil, w
		}
	}
}

// wait returns the number of free places once there is one, or 0 after d or when a context
// ends; expired reports that a lease has ended by its time.
func (w *window) wait(ctx, stopping context.Context, d time.Duration) (n int, expired bool) {
	end := time.NewTimer(d)
	defer end.Stop()
	for {
		free, next := w.free()
		if expired = !next.IsZero() && !next.After(time.Now()); expired || free > 0 {
			return free, expired
		}
		expiry := time.NewTimer(time.Until(next))
		select {
		case <-w.freed:
		case <-expiry.C:
		case <-end.C:
			expiry.Stop()
			return 0, false
		case <-ctx.Done():
			expiry.Stop()
			return 0, false
		case <-stopping.Done():
			expiry.Stop()
			return 0, false
		}
		expiry.Stop()
	}
}

// free returns the number of free places, and the next end of a lease.
func (w *window) free() (n int, next time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, end := range w.mu.leases {
		if next.IsZero() || end.Before(next) {
			next = end
		}
	}
	return w.mu.max - len(w.mu.leases), next
}
