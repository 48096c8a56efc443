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

// A request that had to come soon may be served for longer than that, and so may
// those that come after it on its connection.
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
