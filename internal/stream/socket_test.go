package stream

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

// Connections without subscriptions are bounded too, and a closed one frees its place.
func TestSocket_AsManyAsThereMayBe(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.MaxSubscriptions = 2 })
	url := serve(t, b.Hub) + "/v1/events/ws"
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var open []*websocket.Conn
	for range 2 {
		c, _, err := websocket.Dial(ctx, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer c.CloseNow()
		open = append(open, c)
	}
	_, resp, err := websocket.Dial(ctx, url, nil)
	if err == nil || resp == nil || resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
		t.Fatalf("Dial() beyond the bound = %v, %v", resp, err)
	}
	_ = open[0].Close(websocket.StatusNormalClosure, "")
	for {
		c, resp, err := websocket.Dial(ctx, url, nil)
		if err == nil {
			_ = c.CloseNow()
			return
		}
		if resp == nil || resp.StatusCode != http.StatusTooManyRequests {
			t.Fatalf("Dial() after one has left = %v, %v", resp, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestSocket_SubscribesAndUnsubscribes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := dialSocket(t, b.Hub)
	c.say(o{"type": "ping", "id": "p"})
	c.hear("pong", 0)
	c.say(o{"type": "subscribe", "id": "one", "topics": []string{"a"}})
	last := c.hear("subscribed", 0)
	c.say(o{"type": "subscribe", "id": "one", "topics": []string{"b"}})
	c.hear("error", http.StatusConflict) // the same id again
	for _, bad := range []o{
		{"type": "subscribe", "topics": []string{"a"}},
		{"type": "subscribe", "id": "x"},
		{"type": "nonsense"},
		{"type": "subscribe", "id": "x", "topics": []string{"a"}, "resume": "nonsense"},
	} {
		c.say(bad)
		c.hear("error", http.StatusUnprocessableEntity)
	}
	c.say(o{"type": "unsubscribe", "id": "x"})
	c.hear("error", http.StatusNotFound) // there is none
	b.produce(t, "a", 0, 3)
	for range 3 {
		last = c.hear("event", 0)
	}
	c.say(o{"type": "unsubscribe", "id": "one"})
	c.hear("unsubscribed", 0)
	b.produce(t, "a", 3, 3)
	c.say(o{"type": "ping"})
	c.hear("pong", 0) // and no event

	c = dialSocket(t, b.Hub)
	c.say(o{"type": "subscribe", "id": "back", "topics": []string{"a"}, "resume": last.Position})
	c.hear("subscribed", 0)
	seen := map[int]bool{}
	for range 3 {
		seen[number(t, c.hear("event", 0).Event)] = true
	}
	if !seen[3] || !seen[4] || !seen[5] {
		t.Errorf("after coming back: %v", seen)
	}
	b.stop()
	for {
		var m wsMessage
		if err := wsjson.Read(c.ctx, c.conn, &m); err != nil {
			if websocket.CloseStatus(err) != websocket.StatusGoingAway {
				t.Errorf("the server stops: %v", err)
			}
			break
		}
	}
}

// After the last message of a subscription, or its refusal, its id and place are free
// immediately.
func TestSocket_IDAndSlotAreFreeAfterTheLastMessage(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.MaxSubscriptions = 1 })
	c := dialSocket(t, b.Hub)
	for range 200 {
		c.say(o{"type": "subscribe", "id": "one", "topics": []string{"a"}})
		c.hear("subscribed", 0)
		b.joining <- struct{}{} // so that its place stays taken
		c.say(o{"type": "unsubscribe", "id": "one"})
		c.say(o{"type": "ping"})
		c.hear("pong", 0)
		<-b.joining
		c.hear("unsubscribed", 0)
	}
	for range 200 {
		c.say(o{"type": "subscribe", "id": "one"})
		c.hear("error", http.StatusUnprocessableEntity) // no topic
		c.say(o{"type": "unsubscribe", "id": "one"})
		c.hear("error", http.StatusNotFound)
	}
}

// Every unsubscribe has a response, even if its subscription is starting or ending
// concurrently.
func TestSocket_EachUnsubscribeIsAnswered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := dialSocket(t, b.Hub)
	b.joining <- struct{}{} // nothing begins or ends
	c.say(o{"type": "subscribe", "id": "one", "topics": []string{"a"}, "resume": Position{"a": {0: 7}}.String()})
	c.say(o{"type": "unsubscribe", "id": "one"})
	if m := c.hear("unsubscribed", 0); m.Position != (Position{"a": {0: 7}}).String() {
		t.Errorf("unsubscribed before it was subscribed: %+v", m)
	}
	<-b.joining

	c.say(o{"type": "subscribe", "id": "one", "topics": []string{"a"}})
	c.hear("subscribed", 0)
	b.joining <- struct{}{}
	c.say(o{"type": "unsubscribe", "id": "one"})
	c.say(o{"type": "unsubscribe", "id": "one"})
	c.say(o{"type": "ping"})
	c.hear("error", http.StatusNotFound)
	c.hear("pong", 0)
	<-b.joining
	c.hear("unsubscribed", 0)
}

type o = map[string]any

// talk is a WebSocket of a test.
type talk struct {
	t    *testing.T
	ctx  context.Context
	conn *websocket.Conn
}

func dialSocket(t *testing.T, h *Hub) talk {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	c, _, err := websocket.Dial(ctx, serve(t, h)+"/v1/events/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.CloseNow() })
	return talk{t, ctx, c}
}

func (c talk) say(request o) {
	c.t.Helper()
	if err := wsjson.Write(c.ctx, c.conn, request); err != nil {
		c.t.Fatal(err)
	}
}

func (c talk) hear(want string, status int) (m wsMessage) {
	c.t.Helper()
	if err := wsjson.Read(c.ctx, c.conn, &m); err != nil || m.Type != want || m.Status != status {
		c.t.Fatalf("heard %+v, %v; want %s %d", m, err, want, status)
	}
	return m
}

func TestSocket_ForeignPagesAndForeignersStayOut(t *testing.T) {
	t.Parallel()
	secret, hash := access.NewToken()
	gate, err := access.New(access.Config{Tokens: []access.Token{{Name: "ann", Role: access.Viewer, Hash: hash}}})
	if err != nil {
		t.Fatal(err)
	}
	b := setup(t, func(c *Config) { c.Gate = gate })
	url := serve(t, b.Hub)
	for name, tt := range map[string]struct {
		opts   websocket.DialOptions
		status int
	}{
		"no token":              {websocket.DialOptions{}, 401},
		"a wrong token":         {websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer x"}}}, 401},
		"a token":               {websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + secret}}}, 101},
		"a browser's token":     {websocket.DialOptions{Subprotocols: []string{protocol, access.Subprotocol + secret}}, 101},
		"a page of another's":   {websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + secret}, "Origin": {"https://evil.example"}}}, 403},
		"a browser's bad token": {websocket.DialOptions{Subprotocols: []string{protocol, access.Subprotocol + "x"}}, 401},
	} {
		c, resp, err := websocket.Dial(t.Context(), url+"/v1/events/ws", &tt.opts)
		if resp == nil || resp.StatusCode != tt.status {
			t.Errorf("%s: %v, %v, want %d", name, resp, err, tt.status)
		}
		if c != nil {
			if len(tt.opts.Subprotocols) > 0 && c.Subprotocol() != protocol {
				t.Errorf("%s: subprotocol %q", name, c.Subprotocol())
			}
			_ = c.CloseNow()
		}
	}
	resp, err := http.Get(url + "/v1/events/stream?topics=a")
	if err != nil {
		t.Fatal(err)
	}
	if _ = resp.Body.Close(); resp.StatusCode != 401 {
		t.Errorf("a stream without a token = %d", resp.StatusCode)
	}
}
