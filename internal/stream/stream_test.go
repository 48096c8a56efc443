package stream

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// short is the read and write timeout of a test server; a shorter one would fail on a
// busy machine.
const short = 3 * time.Second

func serve(t testing.TB, h *Hub) string {
	t.Helper()
	mux := http.NewServeMux()
	cfg := huma.DefaultConfig("Watch", "1")
	cfg.CreateHooks = nil
	h.Register(humago.New(mux, cfg))
	srv := httptest.NewUnstartedServer(mux)
	srv.Config.ReadTimeout, srv.Config.WriteTimeout = short, short // must not end a stream
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.URL
}

// sse is one server-sent event.
type sse struct{ id, event, data string }

func openStream(t testing.TB, url, lastID string) (next func() sse, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("GET %s = %d %v", url, resp.StatusCode, resp.Header)
	}
	in := bufio.NewScanner(resp.Body)
	next = func() sse {
		var e sse
		for in.Scan() {
			switch k, v, _ := strings.Cut(in.Text(), ": "); k {
			case "id":
				e.id = v
			case "event":
				e.event = v
			case "data":
				e.data = v
			case "":
				return e
			}
		}
		t.Fatalf("the stream ended: %v", in.Err())
		return e
	}
	return next, sync.OnceFunc(func() { cancel(); _ = resp.Body.Close() })
}

// With TLS a browser uses HTTP/2, where a write deadline stays active after the write: an
// idle stream must outlive it.
func TestStream_IdleOverHTTP2(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.Heartbeat, c.WriteTimeout = short+time.Second, short })
	mux := http.NewServeMux()
	b.Register(humago.New(mux, huma.DefaultConfig("Watch", "1")))
	srv := httptest.NewUnstartedServer(mux)
	srv.EnableHTTP2 = true
	srv.Config.WriteTimeout = short
	srv.StartTLS()
	defer srv.Close()
	resp, err := srv.Client().Get(srv.URL + "/v1/events/stream?topics=a")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.ProtoMajor != 2 {
		t.Fatalf("it is %s", resp.Proto)
	}
	heard := 0
	for in := bufio.NewScanner(resp.Body); heard < 2; {
		if !in.Scan() {
			t.Fatalf("the stream ended after %d events: %v", heard, in.Err())
		}
		if strings.HasPrefix(in.Text(), "event: ") {
			heard++
		}
	}
}

// A HEAD request of a stream keeps neither a place nor the connection.
func TestStream_HeadEnds(t *testing.T) {
	t.Parallel()
	b := setup(t, func(*Config) {})
	mux := http.NewServeMux()
	b.Register(humago.New(mux, huma.DefaultConfig("Watch", "1")))
	w := httptest.NewRecorder() // which never hangs up
	mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodHead, "/v1/events/stream?topics=a", nil))
	if w.Code != 200 || w.Header().Get("Content-Type") != "text/event-stream" || w.Body.Len() != 0 {
		t.Errorf("HEAD = %d %v %q", w.Code, w.Header(), w.Body)
	}
}

func TestStream_ResumesByLastEventID(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.Heartbeat = 100 * time.Millisecond })
	url := serve(t, b.Hub) + "/v1/events/stream?topics=a,b"
	next, stop := openStream(t, url, "")
	last := next()
	if last.event != "subscribed" {
		t.Fatalf("first is %+v", last)
	}
	for began := time.Now(); time.Since(began) < short+time.Second; {
		if last = next(); last.event != "position" {
			t.Fatalf("while nothing comes: %+v", last)
		}
	}
	b.produce(t, "a", 0, 10)
	seen := map[int]int{}
	for len(seen) < 4 {
		if last = next(); last.event == "event" {
			seen[number(t, []byte(last.data))]++
		}
	}
	stop()
	b.produce(t, "b", 10, 10)
	next, stop = openStream(t, url, last.id)
	defer stop()
	for len(seen) < 20 {
		if e := next(); e.event == "event" {
			seen[number(t, []byte(e.data))]++
		}
	}
	for i := range 20 {
		if seen[i] != 1 {
			t.Errorf("event %d came %d times", i, seen[i])
		}
	}
	for query, want := range map[string]int{"": 422, "?topics=_x": 422, "?topics=a&cursor=nonsense": 422} {
		resp, err := http.Get(strings.TrimSuffix(url, "?topics=a,b") + query)
		if err != nil {
			t.Fatal(err)
		}
		if _ = resp.Body.Close(); resp.StatusCode != want {
			t.Errorf("GET %s = %d, want %d", query, resp.StatusCode, want)
		}
	}
}

// After the last event of a stream its place is free immediately.
func TestStream_SlotIsFreeAfterTheLastMessage(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.MaxSubscriptions = 1 })
	w := &listening{ResponseRecorder: httptest.NewRecorder()}
	w.hears = func(said string) {
		switch {
		case strings.Contains(said, "event: subscribed"):
			b.mu.Lock()
			defer b.mu.Unlock()
			for s := range b.topics["a"].subs {
				for !s.slow {
					b.give(b.topics["a"], s, &shared{anew: "a"})
				}
			}
		case strings.Contains(said, "event: dropped"):
			w.dropped = true
			s, err := b.Subscribe(t.Context(), Filter{Topics: []string{"a"}}, nil)
			if err != nil {
				t.Errorf("Subscribe() of one who was told that it is dropped = %v", err)
				return
			}
			s.Close()
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/events/stream?topics=a", nil)
	b.serveStream(humago.NewContext(&huma.Operation{}, r, w), "", Filter{Topics: []string{"a"}}, nil)
	if !w.dropped {
		t.Errorf("it heard %q", w.Body)
	}
}

// listening is a response writer that acts on the events during the write.
type listening struct {
	*httptest.ResponseRecorder
	hears   func(string)
	dropped bool
}

func (l *listening) Write(b []byte) (int, error) {
	l.hears(string(b))
	return l.ResponseRecorder.Write(b)
}
