package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// OpsHandler serves /metrics, as OpenMetrics with exemplars to scrapers that accept it, and /livez and /readyz of [httpapi.Probes].
func OpsHandler(gatherer prometheus.Gatherer, ready httpapi.Readiness) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(gatherer, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	httpapi.Probes(mux, ready)
	return boundBody(mux)
}

// WithProfiles adds Go's profiles, under /debug/pprof/, to h. They contain no published
// data, but cost processor time when they are taken.
func WithProfiles(h http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", h)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return boundBody(mux)
}

// HTTPServer is a listening HTTP server.
type HTTPServer struct {
	srv  *http.Server
	ln   net.Listener
	done chan struct{} // closed when it has ended
	err  error         // set once done is closed; nil after Shutdown
}

const (
	// readHeaderTimeout limits the cost of a client that never finishes its headers,
	// and with OpsHandler of one that never sends the announced body.
	readHeaderTimeout = 5 * time.Second
	// writeTimeout limits a request until the end of its response, a profile of the
	// process included.
	writeTimeout = 5 * time.Minute
)

// boundBody limits the time in which the body of a request must arrive.
// http.Server.ReadTimeout would end a profile too in some releases of Go: its deadline
// continues while the profile is taken.
func boundBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != http.NoBody {
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readHeaderTimeout)) // the writers of tests have no deadlines
		}
		next.ServeHTTP(w, r)
	})
}

// ServeHTTP listens on addr and serves h in the background. It is listening when
// ServeHTTP returns. If it ends before Shutdown, it logs an error and ends what With
// binds to it.
func ServeHTTP(ctx context.Context, addr string, h http.Handler, log *slog.Logger) (*HTTPServer, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for HTTP on %s: %w", addr, err)
	}
	return serveHTTP(ln, h, log), nil
}

func serveHTTP(ln net.Listener, h http.Handler, log *slog.Logger) *HTTPServer {
	s := &HTTPServer{
		srv: &http.Server{
			Handler:           h,
			ReadHeaderTimeout: readHeaderTimeout,
			WriteTimeout:      writeTimeout,
			IdleTimeout:       2 * time.Minute,
			ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		},
		ln:   ln,
		done: make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		if err := s.srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			s.err = fmt.Errorf("serve HTTP on %s: %w", s.Addr(), err)
			log.Error("HTTP server ended unexpectedly", "addr", s.Addr(), "err", err)
		}
	}()
	return s
}

// Addr returns the address it listens on, host:port.
func (s *HTTPServer) Addr() string { return s.ln.Addr().String() }

// With calls f with a context that ends with ctx, and when the server ends before
// Shutdown, because nobody could then monitor the process. It returns the error of f
// joined with the reason why the server ended.
func (s *HTTPServer) With(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		select {
		case <-s.done:
			cancel(s.err)
		case <-ctx.Done():
		}
	})
	err := f(ctx)
	cancel(nil)
	watching.Wait()
	select {
	case <-s.done:
		return errors.Join(err, s.err)
	default:
		return err
	}
}

// Shutdown waits up to timeout for the requests in progress and closes the rest.
func (s *HTTPServer) Shutdown(timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	err := s.srv.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.Join(fmt.Errorf("requests that took longer than %s were closed", timeout), s.srv.Close())
	}
	return err
}
