package admin

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/admin/topics"
	"github.com/scylla-outbox/scylla-outbox/internal/apidocs"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/heartbeat"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/params"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
)

// Server is the operators' API. Handler returns its routes; Serve also stops gracefully.
type Server struct {
	cfg     Config
	log     *slog.Logger
	audit   *audit
	metrics *metrics
	live    *live
	history *history
	handler http.Handler
	ops     *operations
	leaving atomic.Bool // reported by /readyz
}

// maxHeavy bounds the concurrent expensive reads, and the ones of one principal at half of
// it; others wait.
const maxHeavy = 4

// New returns a Server that does not listen yet.
func New(cfg Config) (*Server, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, log: cfg.Logger, metrics: m, audit: newAudit(&cfg, m)}
	mux := http.NewServeMux()
	s.register(mux)
	httpapi.ServeProblems(mux, problems)
	httpapi.Probes(mux, s.Readiness)
	apidocs.Register(mux, http.HandlerFunc(nothing))
	if cfg.Console != nil {
		mux.Handle("/console/", cfg.Console)
		mux.Handle("GET /{$}", http.RedirectHandler("/console/", http.StatusFound))
		mux.Handle("GET /console", http.RedirectHandler("/console/", http.StatusFound))
		cfg.Gate.RegisterSignIn(mux, refuseSignIn)
	}
	browsers := access.Browsers{Logger: cfg.Logger, Refuse: func(w http.ResponseWriter, r *http.Request, e *access.Error) {
		p := newProblem(r.Context(), e.Type(), e.Detail)
		e.Header(p.Header())
		httpapi.Write(w, p)
	}}
	s.handler = cfg.Proxies.Wrap(access.WithRequestIDs(withRemote(access.WithSecureHeaders(s.recovering(browsers.Wrap(httpapi.NotModified(httpapi.Elsewhere(mux, s.ops.api.OpenAPI(), nowhere))))))))
	return s, nil
}

// register adds the operations.
func (s *Server) register(mux *http.ServeMux) {
	conf := httpapi.NewConfig(cli.Version, "Admin", "Reads and changes dead letters, shows the relays, and returns the history of single events.", problems)
	conf.Formats = map[string]huma.Format{"application/json": strictJSON, "json": strictJSON}
	conf.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", schemaNames())
	access.Describe(&conf)
	s.ops = &operations{humago.New(mux, conf), s.log, access.NewPlaces(maxHeavy)}
	whole := httpapi.WholeBodies(func(ctx huma.Context, detail string) {
		httpapi.Answer(ctx, newProblem(ctx.Context(), httpapi.TypeTooLarge, detail))
	})
	s.ops.api.UseMiddleware(httpapi.TraceRequests(s.cfg.Tracer), s.metrics.observe, s.cfg.Gate.Huma, whole, params.Judge(s.ops.api), withReason)
	s.registerEndpoints()
	describeForms(s.ops.api.OpenAPI())
	httpapi.CompleteDocument(s.ops.api.OpenAPI())
}

// registerEndpoints creates each group of endpoints with its dependencies, and registers
// their operations. The order decides which of two types of one name keeps it in the
// description.
func (s *Server) registerEndpoints() {
	cfg, ops := &s.cfg, s.ops
	bulk := jobs.New(cfg.DeadLetters)
	reads := newDeadLetterEndpoints(ops, cfg)
	relays := &relayEndpoints{ops, cfg.Session, cfg.Keyspace, cfg.Timeout}
	s.history = newHistory(cfg, reads.stats, relays)
	status := newStatusEndpoints(ops, cfg, reads, relays)
	s.live = newLive(cfg, s.metrics, liveSources{reads, bulk, status, s.audit.ready})
	actions := &actionEndpoints{ops, cfg.DeadLetters, bulk, reads, s.audit, cfg.Schemas, s.live}
	archives := &archiveEndpoints{ops, cfg.Archive}
	jobRoutes := &jobEndpoints{ops, cfg.DeadLetters, bulk, s.audit, archives, relays, cfg.Kafka, cfg.JobWaits}

	reads.register()
	actions.register()
	jobRoutes.registerPreview()
	actions.registerEdit()
	actions.registerSet()
	reads.registerGroups()
	jobRoutes.register()
	(&redeliverEndpoints{jobRoutes, cfg.Redeliverer}).register()
	archives.register()
	(&auditEndpoints{ops, s.audit, bulk}).register()
	relays.register()
	status.register()
	(&reshardEndpoints{ops, s.audit, cfg.Resharder}).register()
	(&historyEndpoints{ops, s.history}).register()
	(&liveEndpoints{ops, s.live}).register()
	events := newBiographyEndpoints(ops, cfg)
	events.register()
	(&recentEventEndpoints{operations: ops, sources: events.sources, status: status, written: cfg.Written}).register()
	routes := &routeEndpoints{operations: ops, audit: s.audit}
	routes.register([]func(huma.API){topics.New(topics.Config{Kafka: cfg.Kafka, Topics: cfg.Topics, Schemas: cfg.Registry, Logger: cfg.Logger}).Register})
	apidocs.AddExamples(s.ops.api.OpenAPI(), readExamples())
	routes.register(cfg.Routes)
}

// PrepareReads prepares the statements of lists and of the status concurrently, as [dlq.Store.PrepareReads] prepares
// the statements of dead letters, so that the first request takes as few round trips as later ones. It has no error.
func PrepareReads(ctx context.Context, session *gocql.Session, keyspace string) {
	sessions.Prepare(ctx, session, newAuditStatements(keyspace).list, heartbeat.SelectRows(keyspace), selectTopics(keyspace))
}

// Handler returns the routes, for a caller with its own HTTP server.
func (s *Server) Handler() http.Handler { return s.handler }

// OpenAPI returns the OpenAPI document as JSON.
func (s *Server) OpenAPI() ([]byte, error) { return s.ops.api.OpenAPI().MarshalJSON() }

// Serve serves on l until ctx ends. Then /readyz returns 503 immediately, and after
// DrainDelay Serve refuses new requests, ends the streams, waits up to DrainTimeout for
// other requests, and returns nil. It closes l. While it serves, it records the history.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	recording, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { s.history.run(recording) })
	defer wg.Wait()
	defer stop()
	return httpapi.Server{
		Name: "admin API", DrainDelay: s.cfg.DrainDelay, DrainTimeout: s.cfg.DrainTimeout,
		Drainer: (*drainer)(s), Logger: s.log,
	}.Serve(ctx, l, s.handler)
}

// drainer drains a Server that stops.
type drainer Server

func (d *drainer) Drain() { d.leaving.Store(true) }
func (d *drainer) Stop()  { d.live.close() }

// Readiness reports whether /readyz returns 200, and the body of the response.
func (s *Server) Readiness() (bool, any) {
	body, bad := s.ready()
	if bad != nil {
		return false, bad
	}
	return true, body
}

// readyBody is the body of /readyz with status 200.
type readyBody struct {
	Status    string   `json:"status"`
	NodesDown []string `json:"database_nodes_down,omitempty"`
}

func (s *Server) ready() (readyBody, *problem) {
	ctx := context.Background()
	if s.leaving.Load() {
		return readyBody{}, newProblem(ctx, httpapi.TypeStopping, "The server is stopping.")
	}
	asked, cancel := context.WithTimeout(ctx, s.cfg.Timeout)
	defer cancel()
	if err := s.audit.ready(asked); err != nil {
		s.log.Warn("not ready", "err", err)
		p := newProblem(ctx, httpapi.TypeUnavailable, "The database cannot be reached.")
		p.Header().Set("Retry-After", retryAfter)
		return readyBody{}, p
	}
	ready := readyBody{Status: "ready"}
	if s.cfg.Nodes != nil {
		ready.NodesDown = s.cfg.Nodes.Down()
	}
	return ready, nil
}

// recovering responds with 500 if a handler panics.
func (s *Server) recovering(next http.Handler) http.Handler {
	return httpapi.Recovering(next, s.log, func(w http.ResponseWriter, r *http.Request) {
		httpapi.Write(w, newProblem(r.Context(), httpapi.TypeInternal, "Internal error; see the log."))
	})
}

// nowhere responds to requests without a route.
func nowhere(w http.ResponseWriter, r *http.Request, status int, header http.Header) {
	p := nothingAt(r, status)
	switch {
	case status == http.StatusMethodNotAllowed:
		p.Detail = "This path supports " + header.Get("Allow") + "."
		p.Header().Set("Allow", header.Get("Allow"))
	case header.Get("Location") != "":
		p.Header().Set("Location", header.Get("Location"))
	}
	httpapi.Write(w, p)
}

func nothing(w http.ResponseWriter, r *http.Request) {
	httpapi.Write(w, nothingAt(r, http.StatusNotFound))
}

func nothingAt(r *http.Request, status int) *problem {
	typ := httpapi.TypeNoPath
	if status == http.StatusMethodNotAllowed {
		typ = httpapi.TypeMethod
	}
	return newProblem(r.Context(), typ, "No such endpoint. See /openapi.json.")
}
