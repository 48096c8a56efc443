package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// Defaults of Server.
const (
	DefaultReadTimeout = 15 * time.Second
	// DefaultWriteTimeout leaves room for answers that many rows are read for.
	DefaultWriteTimeout = 5 * time.Minute
)

// Server is how an API listens.
type Server struct {
	// Name is what log and errors call it.
	Name string
	// ReadTimeout bounds how long a request may take to arrive, its body included, even
	// if nobody reads that. Default DefaultReadTimeout.
	ReadTimeout time.Duration
	// WriteTimeout bounds how long a request may take from its header on to the end of
	// its answer, so that who asks and does not read keeps no connection. Default
	// DefaultWriteTimeout. A handler that answers for longer sets its own deadlines.
	WriteTimeout time.Duration
	// DrainDelay is how long it goes on taking requests when it is to stop, so that a
	// load balancer hears of that before it is refused. Answers then ask for a new
	// connection, which it will make elsewhere. Zero: none are taken from then on.
	DrainDelay time.Duration
	// DrainTimeout is how long requests may still run after that.
	DrainTimeout time.Duration
	// Leaving is told once that the server is to stop, before DrainDelay: checks of
	// readiness should say so. May be nil.
	Leaving func()
	// Stopping is told once that the server stops, before requests are waited for:
	// what would run for ever has to end. May be nil.
	Stopping func()
	// Logger gets start and stop, and what the HTTP server complains of.
	Logger *slog.Logger
}

// Serve answers on l until ctx ends and for DrainDelay more, then takes no new
// requests, lets those that run finish within DrainTimeout, and returns nil. It
// closes l.
func (s Server) Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	s.ReadTimeout, s.WriteTimeout = cmp.Or(s.ReadTimeout, DefaultReadTimeout), cmp.Or(s.WriteTimeout, DefaultWriteTimeout)
	srv := &http.Server{
		Handler:           lastAnswers(ctx, readInTime(h)),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       s.ReadTimeout,
		WriteTimeout:      s.WriteTimeout,

		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 32 << 10,
		ErrorLog:       slog.NewLogLogger(s.Logger.Handler(), slog.LevelWarn),
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	s.Logger.Info(s.Name+" is up", "addr", l.Addr().String())
	err := s.untilStop(ctx, done)
	if s.Stopping != nil {
		s.Stopping()
	}
	if err != nil {
		return fmt.Errorf("serve %s: %w", s.Name, err)
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.DrainTimeout)
	defer cancel()
	if err := srv.Shutdown(drain); err != nil {
		return errors.Join(fmt.Errorf("drain %s: %w", s.Name, err), srv.Close())
	}
	s.Logger.Info(s.Name + " is down")
	return nil
}

// untilStop waits until no more requests are to be taken, or serving has failed.
func (s Server) untilStop(ctx context.Context, failed <-chan error) error {
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	if s.Leaving != nil {
		s.Leaving()
	}
	if s.DrainDelay <= 0 {
		return nil
	}
	s.Logger.Info(s.Name+" is leaving: not ready any more, and taking requests for a while yet", "drain_delay", s.DrainDelay)
	select {
	case err := <-failed:
		return err
	case <-time.After(s.DrainDelay):
		return nil
	}
}

// lastAnswers has answers ask for a new connection once ctx has ended. Connections
// that are kept would otherwise bring requests here until they are closed under one.
// Of HTTP/2 net/http makes a GOAWAY of it.
func lastAnswers(ctx context.Context, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ctx.Err() != nil {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// Elsewhere lets nowhere answer where mux has no route, with the status and the
// headers that ServeMux would answer with as plain text: 404, 405 with Allow, or a
// redirect with Location.
func Elsewhere(mux *http.ServeMux, nowhere func(w http.ResponseWriter, r *http.Request, status int, header http.Header)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		c := statusCatcher{header: http.Header{}, status: http.StatusOK}
		h.ServeHTTP(&c, r)
		nowhere(w, r, c.status, c.header)
	})
}

// statusCatcher keeps what a handler says and throws away what it writes.
type statusCatcher struct {
	header http.Header
	status int
}

func (c *statusCatcher) Header() http.Header         { return c.header }
func (c *statusCatcher) Write(b []byte) (int, error) { return len(b), nil }
func (c *statusCatcher) WriteHeader(status int)      { c.status = status }
