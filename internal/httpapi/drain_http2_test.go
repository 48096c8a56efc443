package httpapi

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"testing"
	"time"
)

// Over HTTP/2 a stopping server sends a GOAWAY: clients reconnect elsewhere, running
// requests finish, and none is refused.
func TestServer_SendsHTTP2ElsewhereWhileItLeaves(t *testing.T) {
	t.Parallel()
	other := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	defer other.Close()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close() // ends the server, whose delay would not be over
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	left := make(leavings)
	s := Server{Name: "test", DrainDelay: 24 * time.Hour, DrainTimeout: time.Minute, Drainer: left, Logger: slog.New(slog.DiscardHandler)}
	begun, finish := make(chan struct{}), make(chan struct{})
	go func() {
		_ = s.Serve(ctx, tls.NewListener(ln, &tls.Config{MinVersion: tls.VersionTLS12, Certificates: other.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}}),
			http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/slow" {
					close(begun)
					<-finish
				}
			}))
	}()
	client := other.Client()
	client.Transport.(*http.Transport).ForceAttemptHTTP2 = true //nolint:forcetypeassert // that is what httptest makes
	ask := func(path string) (kept bool) {
		t.Helper()
		trace := &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { kept = i.Reused }}
		req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, "https://"+ln.Addr().String()+path, nil)
		if err != nil {
			t.Error(err)
			return false
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Error(err)
			return false
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.ProtoMajor != 2 || resp.StatusCode != http.StatusOK {
			t.Errorf("%s = %s %d, %v", path, resp.Proto, resp.StatusCode, err)
		}
		return kept
	}
	ask("/")
	if !ask("/") {
		t.Error("a connection was not kept before the server was to stop")
	}
	slow := make(chan struct{})
	go func() { defer close(slow); ask("/slow") }()
	<-begun
	stop()
	<-left
	for end := time.Now().Add(30 * time.Second); ask("/"); {
		if time.Now().After(end) {
			t.Fatal("the connection is kept although the server leaves")
		}
	}
	close(finish)
	<-slow
}

// leavings is closed by a server that is about to stop.
type leavings chan struct{}

func (l leavings) Drain() { close(l) }
func (l leavings) Stop()  {}
