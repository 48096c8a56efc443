package admin

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// The read deadline of a body that is read for the audit trail ends before the change is
// made. A long change is not cancelled, and the client can reuse the connection.
func TestRoutes_ABodyThatTheAuditReadHasNoDeadlineLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mux := http.NewServeMux()
		h := humago.New(mux, huma.DefaultConfig("test", "1"))
		h.UseMiddleware(func(ctx huma.Context, next func(huma.Context)) {
			seen := &watched{humaContext: ctx}
			if _, err := seen.read(); err != nil {
				t.Errorf("read() error = %v", err)
			}
			next(seen)
		})
		type input struct{ Body struct{} }
		huma.Register(h, huma.Operation{Method: http.MethodPost, Path: "/change"}, func(ctx context.Context, _ *input) (*struct{}, error) {
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(10 * bodyTimeout):
				return nil, nil
			}
		})
		near, far := net.Pipe()
		defer near.Close()
		conns := make(oneConn, 1)
		conns <- far
		served := make(chan error, 1)
		ctx, stop := context.WithCancel(t.Context())
		server := httpapi.Server{Name: "test", DrainTimeout: time.Minute, Logger: slog.New(slog.DiscardHandler)}
		go func() { served <- server.Serve(ctx, conns, mux) }()
		answers := bufio.NewReader(near)
		for range 2 {
			req := httptest.NewRequest(http.MethodPost, "http://x/change", strings.NewReader("{}"))
			if err := req.Write(near); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(answers, req)
			if err != nil {
				t.Fatal(err)
			}
			if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusNoContent {
				t.Errorf("a long change = %d %s, %v, want 204", resp.StatusCode, body, err)
			}
		}
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// oneConn is a listener that accepts the connections in its channel.
type oneConn chan net.Conn

func (l oneConn) Accept() (net.Conn, error) {
	if c, ok := <-l; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}

func (l oneConn) Close() error   { close(l); return nil }
func (l oneConn) Addr() net.Addr { return &net.TCPAddr{} }
