package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// Defaults of Server.
const (
	DefaultReadTimeout = 15 * time.Second
	// DefaultWriteTimeout allows for responses that read many rows.
	DefaultWriteTimeout = 5 * time.Minute
)

// Server configures the HTTP server of an API.
type Server struct {
	// Name is its name in logs and errors.
	Name string
	// ReadTimeout bounds the read of a request including its body, even if the body is
	// not read. Default DefaultReadTimeout.
	ReadTimeout time.Duration
	// WriteTimeout bounds a request from its header to the end of its response, so that
	// clients that do not read release their connections. Default DefaultWriteTimeout. A
	// handler with longer responses sets its own deadlines.
	WriteTimeout time.Duration
	// DrainDelay is how long a stopping server still accepts requests, so that load
	// balancers can react first. Its responses close the connections, so that clients
	// reconnect elsewhere. Zero refuses new requests immediately.
	DrainDelay time.Duration
	// DrainTimeout bounds the requests that still run after DrainDelay.
	DrainTimeout time.Duration
	// Drainer is the API whose requests end when the server stops. May be nil.
	Drainer Drainer
	// Logger logs start, stop and errors of the HTTP server.
	Logger *slog.Logger
}

// Drainer ends the work of an API when its server stops. Each method is called once.
type Drainer interface {
	// Drain is called before DrainDelay. Readiness checks then fail.
	Drain()
	// Stop is called when the server refuses requests, before it waits for the running
	// ones. It ends endless responses.
	Stop()
}

// Serve serves on l until ctx ends and DrainDelay has passed, then refuses new requests,
// waits up to DrainTimeout for running ones, and returns nil. It closes l. A request whose
// handler panics is answered with 500.
func (s Server) Serve(ctx context.Context, l net.Listener, h http.Handler) error {
	s.ReadTimeout, s.WriteTimeout = cmp.Or(s.ReadTimeout, DefaultReadTimeout), cmp.Or(s.WriteTimeout, DefaultWriteTimeout)
	srv := &http.Server{
		Handler:           lastAnswers(ctx, readInTime(Recovering(h, s.Logger, internal))),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       s.ReadTimeout,
		WriteTimeout:      s.WriteTimeout,

		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: 32 << 10,
		ErrorLog:       slog.NewLogLogger(s.Logger.Handler(), slog.LevelWarn),
	}
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	s.Logger.Info(s.Name+" serving", "addr", l.Addr().String())
	err := s.untilStop(ctx, done)
	if s.Drainer != nil {
		s.Drainer.Stop()
	}
	if err != nil {
		return fmt.Errorf("serve %s: %w", s.Name, err)
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.DrainTimeout)
	defer cancel()
	if err := srv.Shutdown(drain); err != nil {
		return errors.Join(fmt.Errorf("drain %s: %w", s.Name, err), srv.Close())
	}
	s.Logger.Info(s.Name + " stopped")
	return nil
}

// untilStop waits until the server must refuse new requests, or serving has failed.
func (s Server) untilStop(ctx context.Context, failed <-chan error) error {
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	if s.Drainer != nil {
		s.Drainer.Drain()
	}
	if s.DrainDelay <= 0 {
		return nil
	}
	s.Logger.Info(s.Name+" stopping: reports not ready and still accepts requests", "drain_delay", s.DrainDelay)
	select {
	case err := <-failed:
		return err
	case <-time.After(s.DrainDelay):
		return nil
	}
}

// lastAnswers makes responses close their connections once ctx has ended. Otherwise
// persistent connections would deliver requests until they are closed during one. For
// HTTP/2 net/http sends a GOAWAY.
func lastAnswers(ctx context.Context, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ctx.Err() != nil {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// Elsewhere calls nowhere for requests without a route in mux, with the status and
// headers of ServeMux's plain-text response: 404, 405 with Allow, or a redirect with
// Location. A literal path of doc takes precedence over a pattern for any method:
// /v1/messages/batch is not a message. Call it once
// doc has all operations.
func Elsewhere(mux *http.ServeMux, doc *huma.OpenAPI, nowhere func(w http.ResponseWriter, r *http.Request, status int, header http.Header)) http.Handler {
	literal := make(map[string][]string)
	for path, item := range doc.Paths {
		if !strings.Contains(path, "{") {
			literal[path] = listMethods(item)
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if methods, ok := literal[r.URL.Path]; ok {
			if slices.Contains(methods, r.Method) {
				mux.ServeHTTP(w, r)
			} else {
				nowhere(w, r, http.StatusMethodNotAllowed, http.Header{"Allow": {strings.Join(methods, ", ")}})
			}
			return
		}
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

// listMethods returns the methods of a path of the description.
func listMethods(item *huma.PathItem) []string {
	var out []string
	for method, op := range map[string]*huma.Operation{
		http.MethodDelete: item.Delete, http.MethodGet: item.Get, http.MethodHead: item.Get, http.MethodPatch: item.Patch,
		http.MethodPost: item.Post, http.MethodPut: item.Put,
	} {
		if op != nil {
			out = append(out, method)
		}
	}
	slices.Sort(out)
	return out
}

// statusCatcher keeps the status and headers of a handler and discards its body.
type statusCatcher struct {
	header http.Header
	status int
}

func (c *statusCatcher) Header() http.Header         { return c.header }
func (c *statusCatcher) Write(b []byte) (int, error) { return len(b), nil }
func (c *statusCatcher) WriteHeader(status int)      { c.status = status }
