package messages

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/internal/apiserver"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// The server stops while messages are being stored and while others wait for a
// place: all receive complete responses and are stored accordingly. A later
// request is refused.
func TestServer_DrainsOnStop(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.Limiter = fixedLimiter(t, 2) })
	srv := must(apiserver.New(NewAPI(b.Service).HTTP(), apiserver.Config{}))
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx, l) }()

	hits := b.Fault(0, faults.Effect{Freeze: true}, engine.OpWrite, engine.OpLoggedBatch)
	type answer struct {
		status int
		text   string
		err    error
	}
	post := func(path, body string) answer {
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+l.Addr().String()+path, strings.NewReader(body))
		if err != nil {
			return answer{err: err}
		}
		r.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return answer{err: err}
		}
		defer resp.Body.Close() //nolint:errcheck // it was read
		text, err := io.ReadAll(resp.Body)
		return answer{resp.StatusCode, string(text), err}
	}
	answers := make(chan answer, 4)
	for path, bodies := range map[string][]string{
		"/v1/messages":       {`{"topic":"t","payload":1}`, `{"topic":"t","delay":"1h"}`, `{"topic":"t","payload":2}`},
		"/v1/messages/batch": {`{"messages":[{"topic":"t"},{"topic":"t"},{"topic":"t","delay":"1h"}]}`},
	} {
		for _, body := range bodies {
			go func() { answers <- post(path, body) }()
		}
	}
	world.Eventually(t, "two have places, the other two wait", func() bool { return b.guard.Limiter().Occupancy().Waiting == 2 && hits() >= 2 })
	stop()
	world.Eventually(t, "the server drains", func() bool { return world.Request(t, srv.Handler(), "GET", "/readyz", "").Status == 503 })
	select {
	case err := <-served:
		t.Fatalf("Serve() = %v while requests are under way", err)
	default:
	}
	b.Node.Faults().Clear()
	for range 4 {
		if a := <-answers; a.err != nil || a.status != 202 {
			t.Errorf("a request under way got %d %s, %v", a.status, a.text, a.err)
		}
	}
	if err := <-served; err != nil {
		t.Errorf("Serve() = %v", err)
	}
	if a := post("/v1/messages", `{"topic":"t"}`); a.err == nil {
		t.Errorf("a request after the stop got %d %s", a.status, a.text)
	}
	if events, waiting := len(b.events(t)), len(b.waiting(t)); events != 4 || waiting != 2 {
		t.Errorf("%d events, and %d messages wait, want the 4 and 2 that were answered", events, waiting)
	}
}
