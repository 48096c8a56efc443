package api

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// event is the part of a message that the tests read.
type event struct {
	Receipt string
	Data    struct{ N int }
}

// A stream sends as many messages as may be in flight, and the next one when one is
// settled.
func TestStream_IsBoundedBySettledMessages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.publish(3)
	srv := httptest.NewServer(b.Handler())
	defer srv.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/v1/subscriptions/orders/stream?max=2", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	next := func() (kind string, e event) {
		for lines.Scan() {
			line := lines.Text()
			if k, ok := strings.CutPrefix(line, "event: "); ok {
				kind = k
			}
			if data, ok := strings.CutPrefix(line, "data: "); ok {
				if err := json.Unmarshal([]byte(data), &e); err != nil {
					t.Fatalf("%s: %v", line, err)
				}
				return kind, e
			}
		}
		t.Fatalf("the stream ended: %v", lines.Err())
		return "", e
	}
	_, first := next()
	if _, second := next(); first.Data.N != 0 || second.Data.N != 1 {
		t.Fatalf("the first messages are %+v, %+v", first, second)
	}
	if leased := b.service.Leased("orders"); leased != 2 {
		t.Errorf("%d messages are in flight, want 2", leased)
	}
	if r := b.post(t, "extend", receipts(first.Receipt)); r.Code != 200 {
		t.Fatalf("extend = %d %s", r.Code, r.Body)
	}
	if leased := b.service.Leased("orders"); leased != 2 {
		t.Errorf("%d messages are in flight after extend, want 2", leased)
	}
	if r := b.post(t, "ack", receipts(first.Receipt)); r.Code != 200 {
		t.Fatalf("ack = %d %s", r.Code, r.Body)
	}
	if _, third := next(); third.Data.N != 2 {
		t.Errorf("after the acknowledgement came %+v", third)
	}
	b.Drain()
	if kind, _ := next(); kind != "closed" {
		t.Errorf("the last event of a stopping server is %s", kind)
	}
}

func TestStream_OfAnUnknownSubscription(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, path := range []string{"stream", "ws"} {
		if r := b.ask(t, http.MethodGet, "/v1/subscriptions/none/"+path, ""); r.Code != 404 || r.Type != problemNotFound {
			t.Errorf("%s = %d %s", path, r.Code, r.Body)
		}
	}
	if r := b.ask(t, http.MethodGet, "/v1/subscriptions/orders/ws", ""); r.Code != 426 || r.Type != problemUpgrade {
		t.Errorf("ws without an upgrade = %d %s", r.Code, r.Body)
	}
}

func TestSocket_CreditsAndActions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.publish(3)
	srv := httptest.NewServer(b.Handler())
	defer srv.Close()
	conn, resp, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(srv.URL, "http")+"/v1/subscriptions/orders/ws", nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body != nil {
		defer resp.Body.Close()
	}
	defer conn.CloseNow() //nolint:errcheck // the test is over
	send := func(text string) {
		t.Helper()
		if err := conn.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	type answer struct {
		Type, ID, Detail string
		Status           int
		At               time.Time
		Message          event
		Results          []struct{ Code string }
	}
	next := func() (a answer) {
		t.Helper()
		_, body, err := conn.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(body, &a); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		return a
	}
	send(`{"type":"ping","id":"p"}`)
	if a := next(); a.Type != "pong" || a.ID != "p" || a.At.IsZero() {
		t.Errorf("pong = %+v, want a timestamp", a)
	}
	if b.service.Leased("orders") != 0 {
		t.Error("messages were leased without credit")
	}
	send(`{"type":"credit","messages":2}`)
	first, second := next(), next()
	if first.Type != "message" || first.Message.Data.N != 0 || second.Message.Data.N != 1 || b.service.Leased("orders") != 2 {
		t.Errorf("for 2 credits came %+v, %+v with %d leased", first, second, b.service.Leased("orders"))
	}
	send(`{"type":"ack","id":"1","receipts":["` + first.Message.Receipt + `"]}`)
	if a := next(); a.Type != "result" || a.ID != "1" || a.Status != 200 || len(a.Results) != 1 || a.Results[0].Code != "ok" {
		t.Errorf("ack = %+v", a)
	}
	send(`{"type":"nack","id":"2","receipts":["x"],"reason":"r"}`)
	if a := next(); a.Type != "result" || a.ID != "2" || a.Status != 422 || a.Results[0].Code != "invalid_receipt" {
		t.Errorf("nack of an invalid receipt = %+v", a)
	}
	for _, bad := range []string{`{"type":"credit","messages":0,"id":"3"}`, `{"type":"no","id":"3"}`, `{"type":"ack","id":"3"}`, `{"type":"ping","id":"3","x":1}`} {
		send(bad)
		if a := next(); a.Type != "error" || a.ID != "3" || a.Status != 422 || a.Detail == "" {
			t.Errorf("%s = %+v", bad, a)
		}
	}
	send(`{"type":"credit","messages":1}`)
	if a := next(); a.Type != "message" || a.Message.Data.N != 2 {
		t.Errorf("for another credit came %+v", a)
	}
	b.Drain()
	if a := next(); a.Type != "closed" {
		t.Errorf("the last message of a stopping server is %+v", a)
	}
}

// late returns messages although their request was cancelled.
type late struct {
	subscriptions.Service
	hangUp context.CancelFunc
}

func (l late) Receive(_ context.Context, name string, r subscriptions.Receive) ([]subscriptions.Message, error) {
	out, err := l.Service.Receive(context.Background(), name, r)
	l.hangUp()
	return out, err
}

// Messages for a client that has disconnected are returned immediately.
func TestReceive_ReleasesForADisconnectedClient(t *testing.T) {
	t.Parallel()
	ctx, hangUp := context.WithCancel(t.Context())
	b := setup(t, func(c *Config) { c.Service = late{c.Service, hangUp} })
	b.publish(2)
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/subscriptions/orders/receive", strings.NewReader(`{"wait":"20s"}`))
	r.Header.Set("Content-Type", "application/json")
	r.Host = "localhost"
	b.Handler().ServeHTTP(httptest.NewRecorder(), r)
	if n := b.service.Leased("orders"); n != 0 {
		t.Errorf("%d messages are leased to a client that has disconnected", n)
	}
	if got, err := b.service.Receive(t.Context(), "orders", subscriptions.Receive{Max: 9}); err != nil || len(got) != 2 || got[0].Attempt != 1 {
		t.Errorf("Receive() = %+v, %v, want both as a first attempt", got, err)
	}
}

// A client that disconnects while it waits frees its place and takes no message.
func TestReceive_ADisconnectedClientTakesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	srv := httptest.NewServer(b.Handler())
	defer srv.Close()
	ctx, hangUp := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+"/v1/subscriptions/orders/receive", strings.NewReader(`{"wait":"20s"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	done := make(chan struct{})
	go func() {
		defer close(done)
		resp, err := srv.Client().Do(req)
		if err == nil {
			resp.Body.Close()
		}
	}()
	world.Eventually(t, "the request waits", func() bool { return b.service.Waiting() == 1 })
	hangUp()
	<-done
	world.Eventually(t, "the request has ended", func() bool { return b.service.Waiting() == 0 && b.waiting.Taken() == 0 })
	b.publish(1)
	if got := b.receive(t, 1); len(got) != 1 {
		t.Error("the message went to the disconnected client")
	}
}

// Each message of a WebSocket takes one request of the token's rate, which all its connections
// share: one above it is read when the rate permits it.
func TestSocket_IsChargedToTheToken(t *testing.T) {
	t.Parallel()
	secret, hash := access.NewToken()
	gate, err := access.New(access.Config{
		Tokens:            []access.Token{{Name: "app", Role: "consumer(orders)", Hash: hash}},
		RequestsPerSecond: 0.001, RequestsBurst: 6,
	})
	if err != nil {
		t.Fatal(err)
	}
	b := setup(t, func(c *Config) { c.Gate = gate })
	srv := httptest.NewServer(b.Handler())
	defer srv.Close()
	answered := 0
	for i := range 2 { // two requests, and four messages
		conn, resp, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(srv.URL, "http")+"/v1/subscriptions/orders/ws", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + secret}}})
		if err != nil {
			t.Fatal(err)
		}
		if resp.Body != nil {
			defer resp.Body.Close()
		}
		defer conn.CloseNow() //nolint:errcheck // the test is over
		for range 3 {
			if err := conn.Write(t.Context(), websocket.MessageText, []byte(`{"type":"ping"}`)); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 - 2*i {
			if _, _, err := conn.Read(t.Context()); err != nil {
				t.Fatal(err)
			}
			answered++
		}
	}
	if err := access.Charge(access.With(t.Context(), access.Principal{Name: "another"})); err != nil {
		t.Errorf("Charge() of a principal without a rate = %v", err)
	}
	if _, err := gate.Authenticate(t.Context(), "Bearer "+secret, "192.0.2.1:1"); answered != 4 || err == nil {
		t.Errorf("%d messages were answered, and a request is %v; want 4 and an error of the rate", answered, err)
	}
}

// A client that does not settle, as one that hangs, gets the messages of one window only: its
// stream is closed when a lease expires, and no message becomes a dead letter.
func TestStream_IsClosedWhenALeaseExpires(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if _, err := b.service.Put(t.Context(), subscriptions.Subscription{
		Name: "orders", Topics: []string{"orders"}, VisibilityTimeout: time.Second, Backoff: time.Millisecond, MaxReceive: 2,
	}.WithDefaults(), ""); err != nil {
		t.Fatal(err)
	}
	b.publish(100)
	srv := httptest.NewServer(b.Handler())
	defer srv.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/v1/subscriptions/orders/stream?max=10", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := srv.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body) // until the server closes it
	if n := strings.Count(string(body), "event: message\n"); err != nil || n != 10 || !strings.Contains(string(body), "event: closed\ndata: {\"reason\":\"a lease of the stream has expired\"}") {
		t.Errorf("the stream has %d messages and ends with %s, %v; want 10, and the reason", n, body[max(0, len(body)-100):], err)
	}
	if n := len(b.service.Dead("orders")); n != 0 {
		t.Errorf("%d dead letters", n)
	}
}

// A result reaches the stream of its receipt alone, and a closed stream leaves nothing.
func TestStreams_SettledByReceipt(t *testing.T) {
	t.Parallel()
	var s streams
	one, two := s.open(2), s.open(2)
	until := time.Now().Add(time.Hour)
	s.add(one, []subscriptions.Message{{Receipt: "a", LeaseUntil: until}, {Receipt: "b", LeaseUntil: until}})
	s.add(two, []subscriptions.Message{{Receipt: "c", LeaseUntil: until}, {LeaseUntil: until}})
	s.freePlaces([]subscriptions.Settle{{Action: subscriptions.ActionAck, Receipt: "a"}, {Action: subscriptions.ActionAck, Receipt: "unknown"}, {Action: subscriptions.ActionNack, Receipt: "c"}},
		[]subscriptions.Result{{Code: subscriptions.CodeOK}, {Code: subscriptions.CodeOK}, {Code: subscriptions.CodeUnknown}})
	if a, _ := one.free(); a != 1 {
		t.Errorf("%d places of the first stream are free, want 1", a)
	}
	if b, _ := two.free(); b != 1 {
		t.Errorf("%d places of the second stream are free, want 1", b)
	}
	s.close(one)
	s.close(two)
	if len(s.mu.of) != 0 {
		t.Errorf("%d receipts are left", len(s.mu.of))
	}
}
