package httpapi

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener without a network, for virtual time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// errRefused is the error of a closed listener.
var errRefused = errors.New("refused")

// dial connects, or returns errRefused.
func (p *pipes) dial() (net.Conn, error) {
	a, b := net.Pipe()
	select {
	case p.conns <- b:
		return a, nil
	case <-p.closed:
		return nil, errRefused
	}
}

// ask sends a request on a new connection or on the given one.
func (p *pipes) ask(t *testing.T, path string, conn net.Conn) (*http.Response, error) {
	t.Helper()
	if conn == nil {
		var err error
		if conn, err = p.dial(); err != nil {
			return nil, err
		}
		defer conn.Close()
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return resp, err
}

// A stopping server is unready before it refuses requests: it accepts them for
// DrainDelay, closes persistent connections, and completes running requests.
func TestServer_TakesRequestsWhileItLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const delay, slow = 10 * time.Second, 3 * time.Second
		var d drained
		h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/readyz":
				if d.leaving.Load() {
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			case "/slow":
				time.Sleep(slow)
			}
		})
		l := newPipes()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		served := make(chan error, 1)
		s := Server{
			Name: "test", DrainDelay: delay, DrainTimeout: 30 * time.Second, Logger: slog.New(slog.DiscardHandler),
			Drainer: &d,
		}
		go func() { served <- s.Serve(ctx, l, h) }()

		kept, err := l.dial()
		if err != nil {
			t.Fatal(err)
		}
		defer kept.Close()
		if resp, err := l.ask(t, "/", kept); err != nil || resp.StatusCode != 200 || resp.Close {
			t.Fatalf("before the stop: %+v, %v, want 200 and the connection kept", resp, err)
		}
		began := time.Now()
		stop()
		synctest.Wait()
		if resp, err := l.ask(t, "/readyz", nil); err != nil || resp.StatusCode != 503 {
			t.Errorf("readyz while it leaves: %+v, %v, want 503", resp, err)
		}
		if resp, err := l.ask(t, "/", kept); err != nil || resp.StatusCode != 200 || !resp.Close {
			t.Errorf("on the kept connection: %+v, %v, want 200 and Connection: close", resp, err)
		}
		time.Sleep(delay - time.Second)
		slowly := make(chan error, 1)
		go func() {
			resp, err := l.ask(t, "/slow", nil)
			if err == nil && resp.StatusCode != 200 {
				err = errors.New(resp.Status)
			}
			slowly <- err
		}()
		if resp, err := l.ask(t, "/", nil); err != nil || resp.StatusCode != 200 || d.stopping.Load() {
			t.Errorf("at the end of the delay: %+v, %v, stopping %v, want it served", resp, err, d.stopping.Load())
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if _, err := l.ask(t, "/", nil); !errors.Is(err, errRefused) || !d.stopping.Load() {
			t.Errorf("after the delay: %v, stopping %v, want nobody to listen", err, d.stopping.Load())
		}
		if err := <-slowly; err != nil {
			t.Errorf("the request under way: %v", err)
		}
		// Shutdown polls the connections every half second.
		if err := <-served; err != nil || time.Since(began) < delay+slow-time.Second || time.Since(began) > delay+slow {
			t.Errorf("Serve() = %v after %s", err, time.Since(began))
		}
	})
}

// Without a delay it stops as soon as no request runs, as after Ctrl-C.
func TestServer_LeavesAtOnceWithoutADelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newPipes()
		ctx, stop := context.WithCancel(t.Context())
		stop()
		began := time.Now()
		s := Server{Name: "test", DrainTimeout: time.Second, Logger: slog.New(slog.DiscardHandler)}
		if err := s.Serve(ctx, l, http.NotFoundHandler()); err != nil || time.Since(began) > 0 {
			t.Errorf("Serve() = %v after %s, want nil at once", err, time.Since(began))
		}
	})
}

// drained records the calls of a server that stops.
type drained struct{ leaving, stopping atomic.Bool }

func (d *drained) Drain() { d.leaving.Store(true) }
func (d *drained) Stop()  { d.stopping.Store(true) }
