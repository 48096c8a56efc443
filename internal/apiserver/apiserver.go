// Package apiserver is the server of the HTTP APIs for programs: access control, refusals under
// overload, readiness, problems, descriptions and a graceful stop, the same in each of them.
package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus"
	oteltrace "go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/apidocs"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/guard"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/latency"
	"github.com/scylla-outbox/scylla-outbox/internal/params"
	"github.com/scylla-outbox/scylla-outbox/internal/trace"
)

// Defaults of Config.
const (
	DefaultDrainTimeout = 30 * time.Second
	DefaultReadyTimeout = 2 * time.Second
)

// writeTimeout bounds the time until a response is sent: a change takes at most its write budget
// and two attempts, 16 s by default, and waits for a place first. Streams have own deadlines.
const writeTimeout = time.Minute

// API is what an API has of its own.
type API struct {
	// Name names the API in metrics (label api) and in the log, such as orders.
	Name string
	// Title and Description introduce its OpenAPI document.
	Title, Description string
	// Path is the prefix of the operations that use the database. They are refused while the
	// limiter of Guard is full.
	Path string
	// Routes register the operations; each is called once. Problems without a type get one. With a
	// Gate an operation requires the role of the extension x-role, which access.Needs sets, by
	// default a viewer for reads and an operator for the rest.
	Routes []func(huma.API)
	// Pages adds the paths that are no operations. May be nil.
	Pages func(*http.ServeMux)
	// Problems are the types of problems beside the ones that every API has.
	Problems []string
	// Guard protects the database, and Ping returns an error if it does not answer.
	Guard *guard.Guard
	Ping  func(context.Context) error
	// RetryAfter is the Retry-After of /readyz while the database does not answer.
	RetryAfter time.Duration
}

// Config is how a Server behaves. The zero value is usable.
type Config struct {
	// DrainDelay is the time between shutdown, when /readyz starts to fail, and
	// the last accepted request: as long as a load balancer needs to notice.
	// Default 0: new requests are refused immediately.
	DrainDelay time.Duration
	// DrainTimeout bounds the requests in flight after DrainDelay.
	// Default 30 s; it should exceed the service's write budget.
	DrainTimeout time.Duration
	// ReadyTimeout bounds the database query of /readyz. Default 2 s.
	ReadyTimeout time.Duration
	// Nodes are the nodes of the database, for /readyz. May be nil.
	Nodes Nodes
	// Gate authenticates requests. Nil allows everyone, which is for loopback only. /openapi.json,
	// /docs, /problems, /livez, /readyz and the Pages of the API need no token.
	Gate *access.Gate
	// Hosts are the accepted host names, beside IP addresses and localhost, while
	// there is no Gate: any other name may be DNS rebinding by a web page. Nil
	// means none. Ignored with a Gate.
	Hosts *access.Hosts
	// Proxies are trusted reverse proxies whose forwarded headers are used as the
	// client address: for wrong tokens, for quotas without tokens, and in the log.
	// Default: none.
	Proxies access.Proxies
	// Logger receives start, stop and errors of the HTTP server. Default discards.
	Logger *slog.Logger
	// Tracer makes the spans of requests. Nil makes none.
	Tracer oteltrace.TracerProvider
	// Registerer receives the metrics of requests. Default: no metrics are registered.
	Registerer prometheus.Registerer
}

// Nodes are the nodes of a database.
type Nodes interface {
	// Down returns the unreachable nodes, sorted.
	Down() []string
}

func (c Config) withDefaults() Config {
	c.DrainTimeout = cmp.Or(c.DrainTimeout, DefaultDrainTimeout)
	c.ReadyTimeout = cmp.Or(c.ReadyTimeout, DefaultReadyTimeout)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	return c
}

func (c Config) validate() error {
	var errs []error
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
		return fmt.Errorf("API server config: %w", err)
	}
	return nil
}

// Server serves an API, and beside its operations:
//
//	GET /openapi.json   OpenAPI 3.1
//	GET /docs           API console
//	GET /problems       problem types
//	GET /livez /readyz
//
// Every error is a problem document (RFC 9457).
type Server struct {
	api      API
	cfg      Config
	handler  http.Handler
	requests *prometheus.HistogramVec
	draining atomic.Bool
	// accepting ends when requests are refused, by stop.
	accepting context.Context
	stop      context.CancelFunc
}

// New returns a Server that listens nowhere yet.
func New(api API, cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{api: api, cfg: cfg, requests: latency.Requests(api.Name)}
	s.accepting, s.stop = context.WithCancel(context.Background())
	if err := cfg.Registerer.Register(s.requests); err != nil {
		return nil, fmt.Errorf("register %s API metrics: %w", api.Name, err)
	}
	problems := httpapi.Kinds(api.Problems...)
	mux := http.NewServeMux()
	doc := s.register(mux, problems).OpenAPI()
	if api.Pages != nil {
		api.Pages(mux)
	}
	apidocs.Register(mux, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		httpapi.Write(w, newProblem(httpapi.TypeNoPath, "No such page. See /docs."))
	}))
	mux.Handle("GET /{$}", http.RedirectHandler("/docs", http.StatusFound))
	httpapi.ServeProblems(mux, problems)
	httpapi.Probes(mux, s.Readiness)
	browsers := access.Browsers{
		Logger: cfg.Logger,
		Refuse: func(w http.ResponseWriter, _ *http.Request, e *access.Error) { httpapi.Write(w, access.Problem(e)) },
	}
	if cfg.Gate == nil {
		browsers.Hosts = cmp.Or(cfg.Hosts, new(access.Hosts))
	}
	s.handler = api.Guard.Limiter().Shed(
		cfg.Proxies.Wrap(access.WithRequestIDs(access.WithSecureHeaders(browsers.Wrap(httpapi.NotModified(httpapi.Elsewhere(mux, doc, notFound)))))),
		func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, api.Path) })
	return s, nil
}

// register adds the operations to mux and returns the API with its complete description.
func (s *Server) register(mux *http.ServeMux, problems []httpapi.ProblemKind) huma.API {
	conf := httpapi.NewConfig(cli.Version, s.api.Title, s.api.Description, problems)
	access.Describe(&conf)
	h := humago.New(mux, conf)
	h.UseMiddleware(httpapi.TraceRequests(s.cfg.Tracer), s.observe)
	if s.cfg.Gate != nil {
		h.UseMiddleware(s.admit)
	}
	h.UseMiddleware(httpapi.WholeBodies(func(ctx huma.Context, detail string) {
		httpapi.Answer(ctx, newProblem(httpapi.TypeTooLarge, detail))
	}), params.Judge(h))
	for _, register := range s.api.Routes {
		register(h)
	}
	declareSecurity(h, problems)
	httpapi.CompleteDocument(h.OpenAPI())
	return h
}

// observe measures each operation.
func (s *Server) observe(ctx huma.Context, next func(huma.Context)) {
	start := time.Now()
	next(ctx)
	latency.Observe(s.requests.WithLabelValues(ctx.Operation().OperationID, strconv.Itoa(ctx.Status())), time.Since(start), trace.Exemplar(ctx.Context()))
}

// Handler returns the routes, for use in another HTTP server.
func (s *Server) Handler() http.Handler { return s.handler }

// Serve serves on l until ctx ends and for DrainDelay more, with /readyz at 503
// immediately. It then refuses new requests, waits up to DrainTimeout for those
// in flight, and returns nil. It closes l. The tasks beside run until requests are refused: their
// context then ends, so that requests that follow them end too. Serve waits for them.
func (s *Server) Serve(ctx context.Context, l net.Listener, beside ...func(context.Context) error) error {
	var tasks errgroup.Group
	for _, task := range beside {
		tasks.Go(func() error { return task(s.accepting) })
	}
	err := httpapi.Server{
		Name: s.api.Name + " API", WriteTimeout: writeTimeout, DrainDelay: s.cfg.DrainDelay, DrainTimeout: s.cfg.DrainTimeout,
		Drainer: s, Logger: s.cfg.Logger,
	}.Serve(ctx, l, s.handler)
	return errors.Join(err, tasks.Wait())
}

// Drain turns /readyz to 503, so that a load balancer sends requests elsewhere.
func (s *Server) Drain() { s.draining.Store(true) }

// Stop ends the tasks of Serve.
func (s *Server) Stop() { s.stop() }

// health is the body of /readyz with status 200.
type health struct {
	Status string `json:"status"`
	// Breaker is the state of the circuit breaker of the database. InFlight and
	// Waiting count requests, a batch of messages as several; Limit bounds InFlight.
	Breaker  string `json:"breaker"`
	Limit    int    `json:"limit"`
	InFlight int    `json:"in_flight"`
	Waiting  int    `json:"waiting"`
	// NodesDown are the unreachable nodes of the database.
	NodesDown []string `json:"database_nodes_down,omitempty"`
}

// Readiness reports whether /readyz answers with 200, and the body of the answer.
func (s *Server) Readiness() (bool, any) {
	if s.draining.Load() {
		return false, newProblem(httpapi.TypeStopping, "The server is shutting down.")
	}
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.ReadyTimeout)
	defer cancel()
	err := s.api.Ping(ctx)
	state, left := s.api.Guard.Breaker()
	if err != nil {
		s.cfg.Logger.Warn("not ready", "err", err)
		p := newProblem(httpapi.TypeUnavailable, "The database is unavailable; its circuit breaker is "+state+".")
		p.RetryAfter(max(s.api.RetryAfter, left))
		return false, p
	}
	o := s.api.Guard.Limiter().Occupancy()
	h := health{Status: "ready", Breaker: state, Limit: o.Limit, InFlight: o.Taken, Waiting: o.Waiting}
	if s.cfg.Nodes != nil {
		h.NodesDown = s.cfg.Nodes.Down()
	}
	return true, h
}

func newProblem(typ, detail string) *httpapi.Problem {
	p := httpapi.New(typ, detail)
	return &p
}

// notFound answers requests without a route.
func notFound(w http.ResponseWriter, _ *http.Request, status int, header http.Header) {
	p := newProblem(httpapi.TypeNoPath, "No such endpoint. See /openapi.json.")
	if status == http.StatusMethodNotAllowed {
		p = newProblem(httpapi.TypeMethod, "The allowed methods are "+header.Get("Allow")+".")
		p.Header().Set("Allow", header.Get("Allow"))
	}
	httpapi.Write(w, p)
}
