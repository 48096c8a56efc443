package daemon

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// pipes is a listener within the process, for virtual time.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A client cannot keep a connection by sending no body, or by not reading; a profile
// may take its time.
func TestServeHTTP_RequestsAreBounded(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.Handle("/", WithProfiles(OpsHandler(prometheus.NewRegistry(), func() (bool, any) { return true, nil })))
	mux.HandleFunc("GET /much", func(w http.ResponseWriter, _ *http.Request) {
		for range 1000 {
			if _, err := io.WriteString(w, strings.Repeat("x", 4096)); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("GET /long", func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
			w.WriteHeader(http.StatusInternalServerError)
		case <-time.After(time.Minute):
		}
	})
	for name, tt := range map[string]struct{ ask, want string }{
		"a body that never comes":     {"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{", ""},
		"one that a profile has not":  {"POST /debug/pprof/profile HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{", ""},
		"an answer that nobody reads": {"GET /much HTTP/1.1\r\nHost: x\r\n\r\n", ""},
		"an answer that takes long":   {"GET /long HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 OK\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ln := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
				s := serveHTTP(ln, mux, slog.New(slog.DiscardHandler))
				here, there := net.Pipe()
				ln.conns <- there
				if _, err := io.WriteString(here, tt.ask); err != nil {
					t.Fatal(err)
				}
				got := make([]byte, len(tt.want))
				if _, err := io.ReadFull(here, got); err != nil || string(got) != tt.want {
					t.Errorf("the answer begins %q, %v, want %q", got, err, tt.want)
				}
				if tt.want != "" {
					go func() { _, _ = io.Copy(io.Discard, here) }() // until here is closed
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				if err := s.Shutdown(time.Second); err != nil {
					t.Errorf("the connection is still held an hour later: %v", err)
				}
				_ = here.Close()
			})
		})
	}
}
