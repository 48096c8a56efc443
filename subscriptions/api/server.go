package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/apidocs"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/latency"
	"github.com/scylla-outbox/scylla-outbox/internal/params"
	"github.com/scylla-outbox/scylla-outbox/internal/trace"
)

// Server exposes a subscriptions.Service over HTTP: the operations of /openapi.json,
// /docs, /problems, /livez and /readyz. It is safe for concurrent use.
type Server struct {
	cfg      Config
	api      huma.API
	handler  http.Handler
	waiting  *access.Places
	streams  streams
	requests *prometheus.HistogramVec
	spans    *trace.Messages

	leaving atomic.Bool
	// stopping ends when no request may wait any more, stop ends it.
	stopping context.Context
	stop     context.CancelFunc
	open     bool // may have no tokens
}

// New returns a Server. It listens nowhere yet.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, waiting: access.NewPlaces(cfg.MaxWaiting), open: true, spans: trace.NewMessages(cfg.Tracer)}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.requests = latency.Requests("subscriptions")
	if err := cfg.Registerer.Register(s.requests); err != nil {
		return nil, fmt.Errorf("register subscriptions API metrics: %w", err)
	}
	for _, operation := range []string{"receive", "ack"} {
		s.requests.WithLabelValues(operation, "200") // so that rates have a beginning
	}
	mux := http.NewServeMux()
	s.register(mux)
	apidocs.Register(mux, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		httpapi.Write(w, newProblem(httpapi.TypeNoPath, "No such page. See /docs."))
	}))
	httpapi.ServeProblems(mux, problems)
	httpapi.Probes(mux, s.Readiness)
	browsers := access.Browsers{
		Logger: cfg.Logger,
		Refuse: func(w http.ResponseWriter, _ *http.Request, e *access.Error) { httpapi.Write(w, accessProblem(e)) },
	}
	if cfg.Gate == nil {
		browsers.Hosts = cmp.Or(cfg.Hosts, new(access.Hosts))
	}
	h := access.WithRequestIDs(access.WithSecureHeaders(browsers.Wrap(httpapi.NotModified(httpapi.Elsewhere(mux, s.api.OpenAPI(), nowhere)))))
	s.handler = cfg.Proxies.Wrap(h)
	if cfg.Peers != nil {
		// Peers authenticate by a signature, not by tokens or host names.
		outer := http.NewServeMux()
		outer.Handle("/internal/", cfg.Peers)
		outer.Handle("/", s.handler)
		s.handler = outer
	}
	return s, nil
}

// register adds the operations to mux.
func (s *Server) register(mux *http.ServeMux) {
	conf := httpapi.NewConfig(cli.Version, "Subscriptions", "Gives programs a queue over Kafka topics: receive, ack, nack, extend, reject. Delivery is at least once.", problems)
	access.Describe(&conf)
	s.api = humago.New(mux, conf)
	s.api.UseMiddleware(httpapi.TraceRequests(s.cfg.Tracer), s.observe, s.admit, httpapi.WholeBodies(func(ctx huma.Context, detail string) {
		httpapi.Answer(ctx, newProblem(httpapi.TypeTooLarge, detail))
	}), params.Judge(s.api))
	own := s.api
	operators := huma.NewGroup(s.api)
	operators.UseSimpleModifier(func(op *huma.Operation) {
		if op.Method != http.MethodGet {
			httpapi.DescribeReason(op, false)
		}
	})
	if s.cfg.Audit != nil {
		operators.UseMiddleware(s.cfg.Audit)
	}
	s.api = operators
	s.registerOperators()
	s.registerResources()
	s.api = own
	s.registerConsume()
	s.registerStreams()
	httpapi.CompleteDocument(s.api.OpenAPI())
}

// needs adds the role of an operation.
func (s *Server) needs(role access.Role, op huma.Operation) huma.Operation {
	op = access.Needs(role, op)
	if s.open {
		op = access.OrOpen(op)
	}
	return op
}

// admit checks the token of a request before its body is read.
func (s *Server) admit(ctx huma.Context, next func(huma.Context)) {
	if s.cfg.Gate == nil {
		host := ctx.RemoteAddr()
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		next(huma.WithContext(ctx, context.WithValue(ctx.Context(), address{}, host)))
		return
	}
	authorization := access.OrSubprotocol(ctx.Header("Authorization"), ctx.Header("Sec-WebSocket-Protocol"))
	p, err := s.cfg.Gate.Authenticate(ctx.Context(), authorization, ctx.RemoteAddr())
	if err == nil {
		switch needed, ok := ctx.Operation().Extensions["x-role"].(access.Role); {
		case needed == access.Consumer:
			err = access.PermitConsume(p, ctx.Param("name"))
		case needed == access.Viewer && ctx.Param("name") != "":
			err = access.PermitRead(p, ctx.Param("name"))
		case ok:
			err = access.Permit(p, needed)
		default: // an operation without a role is not open by mistake
			err = access.Permit(p, access.Admin)
		}
	}
	if err != nil {
		httpapi.Answer(ctx, accessProblem(err))
		return
	}
	next(huma.WithContext(ctx, access.With(ctx.Context(), p)))
}

// observe measures each operation.
func (s *Server) observe(ctx huma.Context, next func(huma.Context)) {
	start := time.Now()
	next(ctx)
	latency.Observe(s.requests.WithLabelValues(ctx.Operation().OperationID, strconv.Itoa(ctx.Status())), time.Since(start), trace.Exemplar(ctx.Context()))
}

// Handler returns the routes, for use in another HTTP server.
func (s *Server) Handler() http.Handler { return s.handler }

// OpenAPI returns the description of the API as JSON.
func (s *Server) OpenAPI() ([]byte, error) { return s.api.OpenAPI().MarshalJSON() }

// Serve serves on l until ctx ends and for DrainDelay more. Requests that wait for
// messages end immediately, without messages. It then refuses new requests, waits up to
// DrainTimeout for the ones in flight, and returns nil. It closes l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	return httpapi.Server{
		Name: "subscriptions API", DrainDelay: s.cfg.DrainDelay, DrainTimeout: s.cfg.DrainTimeout,
		Drainer: (*drainer)(s), Logger: s.cfg.Logger,
	}.Serve(ctx, l, s.handler)
}

// drainer drains a Server that stops.
type drainer Server

func (d *drainer) Drain() { (*Server)(d).Drain() }
func (d *drainer) Stop()  { d.stop() }

// Drain turns /readyz to 503 and ends the requests that wait for messages.
func (s *Server) Drain() {
	s.leaving.Store(true)
	s.stop()
}

// Readiness reports whether /readyz returns 200, and the body of the response.
func (s *Server) Readiness() (bool, any) {
	if s.leaving.Load() {
		return false, newProblem(httpapi.TypeStopping, "This instance is stopping.").later()
	}
	ready, detail := s.cfg.Ready()
	if ready {
		return true, detail
	}
	text, err := json.Marshal(detail)
	if err != nil {
		text = nil
	}
	return false, newProblem(problemUnavailable, "This instance is not ready: "+string(text)).later()
}

// nowhere answers requests without a route.
func nowhere(w http.ResponseWriter, _ *http.Request, status int, header http.Header) {
	if status == http.StatusMethodNotAllowed {
		p := newProblem(httpapi.TypeMethod, "The allowed methods are "+header.Get("Allow")+".")
		p.Header().Set("Allow", header.Get("Allow"))
		httpapi.Write(w, p)
		return
	}
	httpapi.Write(w, newProblem(httpapi.TypeNoPath, "No such endpoint. See /openapi.json."))
}
