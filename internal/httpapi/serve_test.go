package httpapi

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A client that does not read keeps its connection for a bounded time and does not delay
// the stop.
func TestServer_AReaderWhoDoesNotRead(t *testing.T) {
	t.Parallel()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, err := io.Copy(w, strings.NewReader(strings.Repeat("x", 64<<20))) // more than the kernel takes
		written <- err
	})
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	s := Server{Name: "test", WriteTimeout: 200 * time.Millisecond, DrainTimeout: 30 * time.Second, Logger: slog.New(slog.DiscardHandler)}
	go func() { served <- s.Serve(ctx, ln, h) }()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-written:
		if err == nil {
			t.Error("all was written, although nobody read")
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the answer is still being written")
	}
	stop()
	if err := <-served; err != nil {
		t.Errorf("Serve() = %v", err)
	}
}

// With default timeouts, a client that sends a partial body or does not read keeps its
// connection for a bounded time.
func TestServer_BoundsRequestsByDefault(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]string{
		"a body that never comes":     "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{",
		"an answer that nobody reads": "GET /much HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { boundsByDefault(t, ask) })
		})
	}
}

func boundsByDefault(t *testing.T, ask string) {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/much" {
			w.WriteHeader(http.StatusUnauthorized) // and reads no body
			return
		}
		for range 1000 {
			if _, err := io.WriteString(w, strings.Repeat("x", 4096)); err != nil {
				return
			}
		}
	})
	l := newPipes()
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	s := Server{Name: "test", DrainTimeout: time.Second, Logger: slog.New(slog.DiscardHandler)}
	go func() { served <- s.Serve(ctx, l, h) }()
	conn, err := l.dial()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, ask); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Hour)
	synctest.Wait()
	stop()
	if err := <-served; err != nil {
		t.Errorf("the connection is still held an hour later: Serve() = %v", err)
	}
}
