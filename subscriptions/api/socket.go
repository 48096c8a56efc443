package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
	"github.com/scylla-outbox/scylla-outbox/internal/stream"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/internal/wire"
)

const (
	// maxCredit bounds the messages that a client has asked for.
	maxCredit = 10_000
	// maxSettling bounds the concurrent actions of a socket; the next is read after one.
	maxSettling = 8
)

// reply is a message to a client, apart from messages of the subscription.
type reply struct {
	Type    string          `json:"type"`
	ID      string          `json:"id,omitempty"`
	At      *time.Time      `json:"at,omitempty"`
	Status  int             `json:"status,omitempty"`
	Detail  string          `json:"detail,omitempty"`
	Results json.RawMessage `json:"results,omitempty"`
}

// reason is the data of the last event of a stream.
func reason(text string) []byte {
	b, err := json.Marshal(map[string]string{"reason": text})
	if err != nil {
		return []byte("{}") // a text is always marshalled
	}
	return b
}

type socketInput struct {
	Consumer string `query:"consumer" pattern:"^[a-zA-Z0-9._:@-]{1,100}$" doc:"Name of this consumer in leases and status, as consumer of receive"`
	Name     string `path:"name" pattern:"^[a-zA-Z0-9_-]{1,60}$" doc:"Name of the subscription"`
	Exact    bool   `query:"exact" doc:"Add data_base64 and key_base64, the bytes of payload and key, to each message"`
}

func (s *Server) socket(ctx context.Context, in *socketInput) (*huma.StreamResponse, error) {
	if _, err := s.cfg.Service.Get(ctx, in.Name); err != nil {
		return nil, s.fail(ctx, in.Name, err)
	}
	return &huma.StreamResponse{Body: func(hctx huma.Context) {
		leave, ok := s.waiting.Take(access.Holder(hctx.Context(), hctx.RemoteAddr()))
		if !ok {
			httpapi.Answer(hctx, newProblem(problemFull, "Too many sockets are open, or this caller has half of them.").later())
			return
		}
		defer leave()
		s.serveSocket(hctx, in)
	}}, nil
}

// session is one WebSocket. Several goroutines write; the library serializes the writes.
type session struct {
	server *Server
	socketInput
	conn   *websocket.Conn
	places chan struct{} // of actions in progress

	credited chan struct{} // has a value when credit was added
	mu       struct {
		sync.Mutex
		credit int
	}
}

// serveSocket serves one WebSocket until either side ends it. The leases of its messages
// stay: the client may settle them on another connection.
func (s *Server) serveSocket(hctx huma.Context, in *socketInput) {
	r, w := humago.Unwrap(hctx)
	conn, err := stream.Accept(w, r)
	if err != nil {
		return // it has responded
	}
	defer conn.CloseNow() //nolint:errcheck // after Close it has no effect
	conn.SetReadLimit(maxBody)
	ctx, cancel := context.WithCancel(context.WithoutCancel(hctx.Context()))
	defer cancel()
	c := &session{server: s, socketInput: *in, conn: conn, places: make(chan struct{}, maxSettling), credited: make(chan struct{}, 1)}
	var all sync.WaitGroup
	all.Go(func() {
		if stream.KeepAlive(ctx, conn, s.cfg.Heartbeat, writeTimeout) != nil {
			cancel()
		}
	})
	all.Go(func() {
		c.deliver(ctx)
		cancel()
	})
	for {
		kind, body, err := conn.Read(ctx)
		if err != nil {
			break
		}
		if kind != websocket.MessageText {
			_ = conn.Close(websocket.StatusUnsupportedData, "send JSON texts")
			break
		}
		if access.Charge(ctx) != nil {
			break
		}
		c.request(ctx, &all, body)
	}
	cancel()
	all.Wait()
}

func (c *session) write(ctx context.Context, b []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return c.conn.Write(ctx, websocket.MessageText, b)
}

// reply sends a reply. If the write fails, the connection is closed, which its reader
// notices.
func (c *session) reply(ctx context.Context, m *reply) {
	if b, err := json.Marshal(m); err == nil {
		_ = c.write(ctx, b)
	}
}

// deliver sends messages while there is credit, until the connection or the server ends.
func (c *session) deliver(ctx context.Context) {
	s := c.server
	for ctx.Err() == nil {
		c.mu.Lock()
		credit := c.mu.credit
		c.mu.Unlock()
		if credit == 0 {
			select {
			case <-c.credited:
				continue
			case <-ctx.Done():
				return
			case <-s.stopping.Done():
			}
		}
		var messages []subscriptions.Message
		var err error
		if credit > 0 {
			messages, err = s.take(ctx, c.Name, subscriptions.Receive{Max: min(credit, subscriptions.MaxMessages), Wait: subscriptions.MaxWait, Consumer: c.Consumer}, c.Exact)
		}
		if ctx.Err() != nil {
			return
		}
		c.mu.Lock()
		c.mu.credit -= len(messages)
		c.mu.Unlock()
		for i := range messages {
			b := append(wire.AppendMessage([]byte(`{"type":"message","message":`), &messages[i]), '}')
			if c.write(ctx, b) != nil {
				s.release(c.Name, messages[i:])
				return
			}
		}
		switch {
		case err != nil:
			p := s.fail(ctx, c.Name, err)
			c.reply(ctx, &reply{Type: "closed", Status: p.Status, Detail: p.Detail})
			_ = c.conn.Close(websocket.StatusTryAgainLater, "failed to receive")
			return
		case s.stopping.Err() != nil && len(messages) == 0:
			c.reply(ctx, &reply{Type: "closed", Status: http.StatusServiceUnavailable, Detail: "The server is stopping."})
			_ = c.conn.Close(websocket.StatusGoingAway, "the server is stopping")
			return
		}
	}
}

// request handles a message of the client.
func (c *session) request(ctx context.Context, all *sync.WaitGroup, body []byte) {
	var kind, id string
	credit := 0
	var actions []subscriptions.Settle
	err := decodeBody(body, func(f *fields) {
		f.text("type", &kind)
		f.text("id", &id)
		switch kind {
		case "credit":
			f.number("messages", 1, subscriptions.MaxMessages, &credit)
		case "ping":
		case "ack", "nack", "extend", "reject", "release":
			actions = f.settle(subscriptions.Action(kind))
		default:
			f.bad.Add("type", "must be credit, ack, nack, extend, reject, release or ping")
			f.raw = nil
		}
	})
	switch {
	case err != nil:
		c.refuse(ctx, id, err)
	case kind == "ping":
		now := time.Now().UTC()
		c.reply(ctx, &reply{Type: "pong", ID: id, At: &now})
	case kind == "credit":
		c.mu.Lock()
		c.mu.credit = min(c.mu.credit+credit, maxCredit)
		c.mu.Unlock()
		select {
		case c.credited <- struct{}{}:
		default:
		}
	default:
		select {
		case c.places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		all.Go(func() {
			defer func() { <-c.places }()
			c.settle(ctx, id, actions)
		})
	}
}

func (c *session) settle(ctx context.Context, id string, actions []subscriptions.Settle) {
	results, err := c.server.settle(ctx, c.Name, actions)
	if err != nil {
		c.refuse(ctx, id, err)
		return
	}
	m := &reply{Type: "result", ID: id, Status: http.StatusOK, Results: wire.AppendResults(nil, results)}
	if p := findUnsettled(results); p != nil {
		m.Status, m.Detail = p.Status, p.Detail
	}
	c.reply(ctx, m)
}

func (c *session) refuse(ctx context.Context, id string, err error) {
	m := &reply{Type: "error", ID: id}
	p := toProblem(ctx, c.Name, err)
	m.Status, m.Detail = p.Status, p.Detail
	if invalid, ok := errors.AsType[*jsonform.InvalidError](err); ok {
		m.Detail = invalid.Error()
	}
	c.reply(ctx, m)
}
