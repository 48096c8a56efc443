package stream

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
)

const (
	// maxRequest bounds the size of a message of a client.
	maxRequest = 64 << 10
	// maxOfOne bounds the subscriptions of one connection.
	maxOfOne = 20
)

// wsRequest is a message of a client.
type wsRequest struct {
	Type string `json:"type"`
	ID   string `json:"id"`
	Filter
	Resume string `json:"resume"`
}

// wsMessage is a message to a client.
type wsMessage struct {
	Type     string          `json:"type"`
	ID       string          `json:"id,omitempty"`
	Position string          `json:"position,omitempty"`
	Event    json.RawMessage `json:"event,omitempty"`
	Gaps     []Gap           `json:"gaps,omitempty"`
	Status   int             `json:"status,omitempty"`
	Detail   string          `json:"detail,omitempty"`
}

// socket serves one WebSocket until either side ends it.
func (h *Hub) socket(hctx huma.Context) {
	r, w := humago.Unwrap(hctx)
	holder, with, err := h.authenticate(hctx.Context(), r)
	if err != nil {
		httpapi.Answer(hctx, notLetIn(err))
		return
	}
	leave, ok := h.sockets.Take(holder)
	if !ok {
		httpapi.Answer(hctx, toProblem(ErrFull))
		return
	}
	defer leave()
	conn, err := Accept(w, r)
	if err != nil {
		return // it has responded
	}
	defer conn.CloseNow() //nolint:errcheck // after Close it has no effect
	conn.SetReadLimit(maxRequest)
	ctx, cancel := context.WithCancel(context.WithoutCancel(with))
	defer cancel()
	c := &connection{hub: h, holder: holder, conn: conn, subs: make(map[string]context.CancelFunc)}
	var all sync.WaitGroup
	all.Go(func() {
		if KeepAlive(ctx, conn, h.cfg.Heartbeat, h.cfg.WriteTimeout) != nil {
			cancel()
		}
	})
	all.Go(func() {
		select {
		case <-h.ended:
			_ = conn.Close(websocket.StatusGoingAway, "the server is stopping")
			cancel()
		case <-ctx.Done():
		}
	})
	for {
		kind, body, err := conn.Read(ctx)
		if err != nil {
			break
		}
		if access.Charge(ctx) != nil {
			break
		}
		if kind != websocket.MessageText || !c.request(ctx, body) {
			_ = conn.Close(websocket.StatusUnsupportedData, "send JSON texts")
			break
		}
	}
	cancel()
	c.streaming.Wait()
	all.Wait()
}

// Accept upgrades a request to a WebSocket. It refuses pages of another origin. After an
// error it has responded with a problem document.
func Accept(w http.ResponseWriter, r *http.Request) (*websocket.Conn, error) {
	return websocket.Accept(&refusal{ResponseWriter: w}, r, &websocket.AcceptOptions{Subprotocols: []string{protocol}})
}

// KeepAlive sends a ping at each interval until ctx ends. It returns the error of the first
// ping without a pong within timeout; nil if ctx ends.
func KeepAlive(ctx context.Context, conn *websocket.Conn, interval, timeout time.Duration) error {
	t := time.NewTicker(interval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
		ping, cancel := context.WithTimeout(ctx, timeout)
		err := conn.Ping(ping)
		cancel()
		if err != nil {
			return err
		}
	}
}

// connection is one WebSocket with its subscriptions. Several goroutines may write; the
// library serializes the writes.
type connection struct {
	hub       *Hub
	holder    string // of its places
	conn      *websocket.Conn
	streaming sync.WaitGroup

	mu   sync.Mutex
	subs map[string]context.CancelFunc
}

func (c *connection) send(ctx context.Context, m *wsMessage) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.hub.cfg.WriteTimeout)
	defer cancel()
	return c.conn.Write(ctx, websocket.MessageText, b)
}

// request handles a message of the client. It returns false if the message cannot be
// decoded.
func (c *connection) request(ctx context.Context, body []byte) bool {
	var q wsRequest
	if json.Unmarshal(body, &q) != nil {
		return false
	}
	refuse := func(status int, detail string) {
		// If the write fails, the connection is closed, which its reader notices.
		_ = c.send(ctx, &wsMessage{Type: "error", ID: q.ID, Status: status, Detail: detail})
	}
	switch q.Type {
	case "ping":
		_ = c.send(ctx, &wsMessage{Type: "pong", ID: q.ID})
	case "unsubscribe":
		c.mu.Lock()
		stop := c.subs[q.ID]
		if stop != nil {
			c.subs[q.ID] = nil // its last message answers the first request
		}
		c.mu.Unlock()
		if stop == nil {
			refuse(http.StatusNotFound, "There is no subscription with that id.")
			return true
		}
		stop()
	case "subscribe":
		var from Position
		if q.Resume != "" {
			var err error
			if from, err = ParsePosition(q.Resume); err != nil {
				refuse(http.StatusUnprocessableEntity, "resume "+err.Error()+".")
				return true
			}
		}
		sub, stop := context.WithCancel(ctx)
		c.mu.Lock()
		_, twice := c.subs[q.ID]
		full := len(c.subs) >= maxOfOne
		if !twice && !full && q.ID != "" {
			c.subs[q.ID] = stop
		}
		c.mu.Unlock()
		switch {
		case q.ID == "":
			refuse(http.StatusUnprocessableEntity, "id is required: the id of the subscription.")
		case twice:
			refuse(http.StatusConflict, "There is a subscription with that id.")
		case full:
			refuse(http.StatusTooManyRequests, "The connection has as many subscriptions as it may.")
		default:
			c.streaming.Go(func() { defer stop(); c.stream(ctx, sub, &q, from) })
			return true
		}
		stop()
	default:
		refuse(http.StatusUnprocessableEntity, "type must be subscribe, unsubscribe or ping.")
	}
	return true
}

// stream sends the events of one subscription until sub, the subscription, or ctx, the
// connection, ends.
func (c *connection) stream(ctx, sub context.Context, q *wsRequest, from Position) {
	s, err := c.hub.subscribe(sub, c.holder, q.Filter, from)
	switch {
	case err == nil:
	case sub.Err() != nil: // requested while the subscription started
		c.end(ctx, &wsMessage{Type: "unsubscribed", ID: q.ID, Position: q.Resume})
		return
	default:
		status, detail := refusalStatus(err)
		c.end(ctx, &wsMessage{Type: "error", ID: q.ID, Status: status, Detail: detail})
		return
	}
	m := &wsMessage{Type: "subscribed", ID: q.ID, Position: s.at.String(), Gaps: s.Gaps}
	sent := func(error) {}
	for err == nil {
		err = c.send(ctx, m)
		sent(err)
		if err != nil {
			// A client that does not read loses its connection with all subscriptions.
			_ = c.conn.CloseNow()
			s.Close()
			return
		}
		var event []byte
		if event, err = s.Next(sub); err == nil {
			m = &wsMessage{Type: "event", ID: q.ID, Position: s.at.String(), Event: event}
			sent = s.sending("websocket")
		}
	}
	last := &wsMessage{Type: "unsubscribed", ID: q.ID, Position: s.at.String()}
	switch {
	case errors.Is(err, ErrSlow):
		last.Type, last.Detail = "dropped", ErrSlow.Error()
	case errors.Is(err, ErrAnew), errors.Is(err, ErrGone), errors.As(err, new(*FilterError)):
		last.Detail = err.Error()
	}
	s.Close() // its place must be free before the client receives the last message
	c.end(ctx, last)
}

// end sends the last message of a subscription. The client may then reuse the id
// immediately, and requests about the id in the meantime are answered after it.
func (c *connection) end(ctx context.Context, last *wsMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.subs, last.ID)
	_ = c.send(ctx, last)
}
