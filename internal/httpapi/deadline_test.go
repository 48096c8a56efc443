package httpapi

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A request may be served for longer than its read timeout, and so may later ones on its
// connection.
func TestServer_DeadlinesOfReadingEndWithTheBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const soon = 5 * time.Second
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost {
				_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(soon)) // as huma does before it reads
				if _, err := io.ReadAll(r.Body); err != nil {
					w.WriteHeader(http.StatusRequestTimeout)
					return
				}
			}
			select {
			case <-r.Context().Done():
				w.WriteHeader(StatusHungUp)
			case <-time.After(2 * soon):
			}
		})
		l := newPipes()
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		s := Server{Name: "test", ReadTimeout: soon, DrainTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler)}
		go func() { served <- s.Serve(ctx, l, h) }()
		conn, err := l.dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		answers := bufio.NewReader(conn)
		for _, ask := range []struct{ method, body string }{{"POST", "{}"}, {"POST", ""}, {"GET", ""}, {"POST", "{}"}} {
			req, err := http.NewRequestWithContext(t.Context(), ask.method, "http://x/", strings.NewReader(ask.body))
			if err != nil {
				t.Fatal(err)
			}
			if err := req.Write(conn); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(answers, req)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("%s %q = %d, %v, want 200", ask.method, ask.body, resp.StatusCode, err)
			}
		}
		stop()
		if err := <-served; err != nil {
			t.Errorf("Serve() = %v", err)
		}
	})
}

// A client that waits with its body (Expect: 100-continue) gets a refusal immediately:
// neither side waits for bytes that the client does not send.
func TestServer_RefusesBeforeTheBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error, 1)
		s := Server{Name: "test", DrainTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler)}
		h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) })
		go func() { served <- s.Serve(ctx, l, h) }()
		conn, err := l.dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		asked := time.Now()
		if _, err := io.WriteString(conn, "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(asked); resp.StatusCode != http.StatusUnauthorized || took > 0 {
			t.Errorf("the answer is %d after %s, want 401 immediately", resp.StatusCode, took)
		}
		_ = conn.Close() // the server waits for it before it closes its side
		stop()
		if err := <-served; err != nil {
			t.Errorf("Serve() = %v", err)
		}
	})
}
