package orders

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"
	"go.opentelemetry.io/otel/trace"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/apidocs"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// Defaults of ServerConfig.
const (
	DefaultMaxBodyBytes = 256 << 10
	DefaultDrainTimeout = 30 * time.Second
	DefaultReadyTimeout = 2 * time.Second
)

const (
	// readTimeout bounds the arrival of a request. writeTimeout bounds the time
	// until its response is sent: a change takes at most WriteBudget and two
	// attempts, 16 s by default, and waits for a place first.
	readTimeout  = 15 * time.Second
	writeTimeout = time.Minute
)

// ServerConfig is how a Server behaves. The zero value is usable.
type ServerConfig struct {
	// MaxBodyBytes bounds a request body. Default 256 KiB; at most that, as an
	// order and its event must fit one batch with their rows in the CDC log.
	MaxBodyBytes int64
	// DrainDelay is the time between shutdown, when /readyz starts to fail, and
	// the last accepted request: as long as a load balancer needs to notice.
	// Default 0: new requests are refused immediately.
	DrainDelay time.Duration
	// DrainTimeout bounds the requests in flight after DrainDelay.
	// Default 30 s; it should exceed the service's WriteBudget.
	DrainTimeout time.Duration
	// Stopping is called once, after DrainDelay; long-running requests of Routes
	// must then end, because Serve waits for them. May be nil.
	Stopping func()
	// ReadyTimeout bounds the database query of /readyz. Default 2 s.
	ReadyTimeout time.Duration
	// Nodes are the nodes of the database, for /readyz. May be nil.
	Nodes Nodes
	// Gate authenticates requests: reading requires a viewer, everything else an
	// operator. Nil allows everyone, which is for loopback only. /openapi.json,
	// /asyncapi.json, /docs, /problems, /livez and /readyz need no token.
	Gate *access.Gate
	// Hosts are the accepted host names, beside IP addresses and localhost, while
	// there is no Gate: any other name may be DNS rebinding by a web page. Nil
	// means none. Ignored with a Gate.
	Hosts *access.Hosts
	// Proxies are trusted reverse proxies whose forwarded headers are used as the
	// client address: for wrong tokens, for quotas without tokens, and in the log.
	// Default: none.
	Proxies access.Proxies
	// Routes register further operations on the same server; each is called once
	// with its API. Problems without a type get one. With a Gate an operation
	// requires the role of access.Needs, by default a viewer for reads and an
	// operator for the rest.
	Routes []func(huma.API)
	// Publication describes the topics of the events, for /asyncapi.json. Its Brokers
	// are shown to every caller.
	Publication Publication
	// Limited are prefixes of paths of Routes whose requests, as those of orders, are
	// refused while the service's limiter is full.
	Limited []string
	// Problems are problems of Routes that orders do not return; /problems and the
	// description include them.
	Problems []httpapi.ProblemKind
	// Logger receives start, stop and errors of the HTTP server. Default discards.
	Logger *slog.Logger
	// Tracer makes the spans of requests. Nil makes none.
	Tracer trace.TracerProvider
}

// Nodes are the nodes of a database.
type Nodes interface {
	// Down returns the unreachable nodes, sorted.
	Down() []string
}

func (c ServerConfig) withDefaults() ServerConfig {
	c.MaxBodyBytes = cmp.Or(c.MaxBodyBytes, DefaultMaxBodyBytes)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, DefaultDrainTimeout)
	c.ReadyTimeout = cmp.Or(c.ReadyTimeout, DefaultReadyTimeout)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c ServerConfig) validate() error {
	var errs []error
	if c.MaxBodyBytes < 1 || c.MaxBodyBytes > DefaultMaxBodyBytes {
		errs = append(errs, fmt.Errorf("max body bytes %d: must be from 1 to %d", c.MaxBodyBytes, DefaultMaxBodyBytes))
	}
	if c.DrainDelay < 0 {
		errs = append(errs, fmt.Errorf("drain delay %s: must not be negative; 0 disables it", c.DrainDelay))
	}
	if c.DrainTimeout <= 0 {
		errs = append(errs, fmt.Errorf("drain timeout %s: must be positive", c.DrainTimeout))
	}
	if c.ReadyTimeout <= 0 {
		errs = append(errs, fmt.Errorf("ready timeout %s: must be positive", c.ReadyTimeout))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("orders server config: %w", err)
	}
	return nil
}

// Server exposes a Service over HTTP:
//
//	POST  /v1/orders               create
//	GET   /v1/orders               list the orders of a customer
//	GET   /v1/orders/{id}          read
//	GET   /v1/orders/{id}/events   list its events
//	GET   /v1/orders/{id}/preview  preview a change
//	PATCH /v1/orders/{id}          update
//	POST  /v1/orders/{id}/confirm  confirm
//	POST  /v1/orders/{id}/ship     ship
//	POST  /v1/orders/{id}/cancel   cancel
//	GET   /openapi.json            OpenAPI 3.1
//	GET   /asyncapi.json           AsyncAPI 3.0 of the topics
//	GET   /docs                    API console
//	GET   /problems                problem types
//	GET   /livez /readyz
//
// Every error is a problem document (RFC 9457).
type Server struct {
	cfg      ServerConfig
	service  *Service
	handler  http.Handler
	draining atomic.Bool
}

// NewServer returns a Server on service. It listens nowhere yet.
func NewServer(service *Service, cfg ServerConfig) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, service: service}
	mux := http.NewServeMux()
	problems := slices.Concat(catalogue, cfg.Problems)
	a := &api{service: service, tracer: cfg.Tracer, gate: cfg.Gate, roles: cfg.Gate != nil, problems: problems}
	h := a.register(mux, cfg.MaxBodyBytes)
	for _, register := range cfg.Routes {
		register(h)
	}
	a.declareSecurity(h)
	refine(h.OpenAPI())
	httpapi.CompleteDocument(h.OpenAPI())
	addExamples(h.OpenAPI())
	topics, err := cfg.Publication.AsyncAPI()
	if err != nil {
		return nil, fmt.Errorf("describe the topics: %w", err)
	}
	mux.HandleFunc("GET /asyncapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.aai.asyncapi+json;version=3.0.0")
		_, _ = w.Write(topics) // a disconnected client needs no response
	})
	apidocs.Register(mux, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		httpapi.Write(w, newProblem(http.StatusNotFound, problemNoPath, "No such page. See /docs."))
	}))
	mux.Handle("GET /{$}", http.RedirectHandler("/docs", http.StatusFound))
	mux.HandleFunc("GET /problems", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, "application/json", map[string]any{"problems": problems})
	})
	httpapi.Probes(mux, s.Readiness)
	browsers := access.Browsers{
		Logger: cfg.Logger,
		Refuse: func(w http.ResponseWriter, _ *http.Request, e *access.Error) { httpapi.Write(w, accessProblem(e)) },
	}
	if cfg.Gate == nil {
		browsers.Hosts = cmp.Or(cfg.Hosts, new(access.Hosts))
	}
	limited := append([]string{"/v1/orders"}, cfg.Limited...)
	s.handler = service.Limiter().Shed(
		cfg.Proxies.Wrap(access.WithRequestIDs(access.WithSecureHeaders(browsers.Wrap(httpapi.NotModified(httpapi.Elsewhere(mux, h.OpenAPI(), notFound)))))),
		func(r *http.Request) bool {
			return slices.ContainsFunc(limited, func(prefix string) bool { return strings.HasPrefix(r.URL.Path, prefix) })
		})
	return s, nil
}

// Handler returns the routes, for use in another HTTP server.
func (s *Server) Handler() http.Handler { return s.handler }

// Serve serves on l until ctx ends and for DrainDelay more, with /readyz at 503
// immediately. It then refuses new requests, waits up to DrainTimeout for those
// in flight, and returns nil. It closes l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	return httpapi.Server{
		Name: "order API", ReadTimeout: readTimeout, WriteTimeout: writeTimeout, DrainDelay: s.cfg.DrainDelay, DrainTimeout: s.cfg.DrainTimeout,
		Drainer: s, Logger: s.cfg.Logger,
	}.Serve(ctx, l, s.handler)
}

// Drain turns /readyz to 503, so that a load balancer sends requests elsewhere.
func (s *Server) Drain() { s.draining.Store(true) }

// Stop ends the long-running requests of ServerConfig.Routes.
func (s *Server) Stop() {
	if s.cfg.Stopping != nil {
		s.cfg.Stopping()
	}
}

// health is the body of /readyz with status 200.
type health struct {
	Status string `json:"status"`
	// Breaker is the state of the circuit breaker of the database. InFlight and
	// Waiting count requests, a batch of messages as several; Limit bounds InFlight.
	Breaker  string `json:"breaker,omitempty"`
	Limit    *int   `json:"limit,omitempty"`
	InFlight *int   `json:"in_flight,omitempty"`
	Waiting  *int   `json:"waiting,omitempty"`
	// NodesDown are the unreachable nodes of the database.
	NodesDown []string `json:"database_nodes_down,omitempty"`
}

// Readiness reports whether /readyz answers with 200, and the body of the answer.
func (s *Server) Readiness() (bool, any) {
	h, bad := s.ready()
	if bad != nil {
		return false, bad
	}
	return true, h
}

func (s *Server) ready() (health, *problem) {
	if s.draining.Load() {
		return health{}, newProblem(http.StatusServiceUnavailable, problemStopping, "The server is shutting down.")
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.ReadyTimeout)
	defer cancel()
	if err := s.service.Ready(ctx); err != nil {
		state, left := s.service.guard.Breaker()
		p := toProblem(&UnavailableError{RetryAfter: max(s.service.cfg.RetryAfter, left), Err: err}, gocql.UUID{}, false)
		s.cfg.Logger.Warn("not ready", "err", err)
		bad := p.(*problem) //nolint:forcetypeassert // toProblem returns this type
		bad.Detail = "The database is unavailable; its circuit breaker is " + state + "."
		return health{}, bad
	}
	h := s.health("ready")
	if s.cfg.Nodes != nil {
		h.NodesDown = s.cfg.Nodes.Down()
	}
	return h, nil
}

func (s *Server) health(status string) health {
	state, _ := s.service.guard.Breaker()
	o := s.service.Limiter().Occupancy()
	return health{Status: status, Breaker: state, Limit: &o.Limit, InFlight: &o.Taken, Waiting: &o.Waiting}
}

func writeJSON(w http.ResponseWriter, status int, contentType string, v any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a disconnected client needs no response
}

// notFound answers requests without a route.
func notFound(w http.ResponseWriter, _ *http.Request, status int, header http.Header) {
	if status == http.StatusMethodNotAllowed {
		httpapi.Write(w, wrongMethod(header.Get("Allow")))
		return
	}
	httpapi.Write(w, newProblem(status, problemNoPath, "No such endpoint. See /openapi.json."))
}

func wrongMethod(allowed string) *problem {
	p := newProblem(http.StatusMethodNotAllowed, problemMethod, "The allowed methods are "+allowed+".")
	p.Header().Set("Allow", allowed)
	return p
}

// observe measures each operation.
func (a *api) observe(ctx huma.Context, next func(huma.Context)) {
	start := time.Now()
	next(ctx)
	a.service.metrics.request(ctx.Context(), ctx.Operation().OperationID, strconv.Itoa(ctx.Status()), time.Since(start))
}
