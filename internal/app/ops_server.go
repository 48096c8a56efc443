package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
)

// OpsAddrKey is the setting of the ops listener, FlagOpsAddr its flag, and OpsOff the value
// that disables it.
const OpsAddrKey, FlagOpsAddr, OpsOff = "ops.addr", "ops-addr", "off"

// OpsAddrs are the defaults of ops.addr by command. They differ, and none is a default
// port of the database, of Kafka or of an API, so that all commands can run on one host.
var OpsAddrs = map[string]string{
	"relay": "127.0.0.1:9090", "orders": "127.0.0.1:9091", "notifier": "127.0.0.1:9094", "admin": "127.0.0.1:9096", "subscriptions": "127.0.0.1:9097", "messages": "127.0.0.1:9099",
}

// OpsServer serves /metrics, /livez and /readyz of a process from its start on, also while
// the database is not connected. APIs serve neither metrics nor profiles.
type OpsServer struct {
	URL    string                            // "off" without a listener
	Server *daemon.HTTPServer                // nil without a listener
	ready  atomic.Pointer[httpapi.Readiness] // nil until the process works
	Nodes  *sessions.Nodes                   // of the database
	hosts  []string                          // contact points of the database
	why    atomic.Pointer[string]            // why the database is not connected; nil before the first attempt
}

// serve starts the ops listener. It returns nil if the listener is off. A panic of a handler
// is logged and counted, and answered with 500.
func (c *OpsConfig) serve(ctx context.Context, allowed []string, reg prometheus.Gatherer, ready httpapi.Readiness, log *slog.Logger) (*daemon.HTTPServer, error) {
	hosts, err := access.NewHosts(c.Addr, allowed)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("http.hosts: %w", err))
	}
	switch c.Addr {
	case OpsOff:
		return nil, nil
	case "": // package net would choose any port of all addresses
		return nil, cli.Usage(errors.New("ops.addr is empty; set host:port or off"))
	}
	panics := prometheus.NewCounter(prometheus.CounterOpts{Name: "outbox_ops_listener_panics_total", Help: "Requests to the ops listener that panicked; the log has the stack."})
	own := prometheus.NewRegistry()
	own.MustRegister(panics)
	h := daemon.OpsHandler(prometheus.Gatherers{reg, own}, ready)
	if c.Profiles {
		h = daemon.WithProfiles(h)
	}
	h = httpapi.Recovering(h, log, func(w http.ResponseWriter, _ *http.Request) {
		panics.Inc()
		http.Error(w, "Internal error; see the log.", http.StatusInternalServerError)
	})
	browsers := access.Browsers{Hosts: hosts, Logger: log, Refuse: func(w http.ResponseWriter, _ *http.Request, e *access.Error) {
		http.Error(w, "Only IP addresses, localhost and the names in http.hosts are allowed as host.", e.Status)
	}}
	s, err := daemon.ServeHTTP(ctx, c.Addr, browsers.Wrap(h), log)
	if err != nil {
		return nil, cli.PortHint(fmt.Errorf("ops.addr: %w", err), c.Addr, "ops.addr (--ops-addr)")
	}
	return s, nil
}

// ServeOps starts the ops listener. teardown ends it.
func ServeOps(ctx context.Context, c *Config, reg prometheus.Gatherer, log *slog.Logger, teardown *daemon.Teardown) (*OpsServer, error) {
	a := &OpsServer{URL: OpsOff, hosts: c.Scylla.Hosts, Nodes: c.Scylla.Nodes}
	s, err := c.Ops.serve(ctx, c.HTTP.Hosts, reg, a.Readiness, log)
	if err != nil {
		return nil, err
	}
	if s != nil {
		a.Server, a.URL = s, "http://"+s.Addr()
		teardown.Add("ops listener", func() error { return s.Shutdown(AdminShutdown) })
	}
	return a, nil
}

// With calls f with a context that also ends when the server fails: without it the process
// would run unobserved.
func (a *OpsServer) With(ctx context.Context, f func(context.Context) error) error {
	if a.Server == nil {
		return f(ctx)
	}
	return a.Server.With(ctx, f)
}

// Works sets the readiness of a process that has started.
func (a *OpsServer) Works(f httpapi.Readiness) { a.ready.Store(&f) }

// waits records why the database is not connected.
func (a *OpsServer) waits(err error) {
	why := strings.TrimSpace(err.Error())
	if text := cli.FindHint(err); text != "" {
		why += " (" + text + ")"
	}
	a.why.Store(&why)
}

// problem returns the problem of a process without a database connection for /readyz.
func (a *OpsServer) problem() string {
	if why := a.why.Load(); why != nil {
		return "starting: waiting for ScyllaDB: " + *why
	}
	return "starting: ScyllaDB at " + strings.Join(a.hosts, ", ") + " is not connected yet"
}

// Readiness reports the state of the process for /readyz: not ready before [OpsServer.Works],
// with the reason why the database is not connected; afterwards the result of the function
// given to Works, with the nodes of the database that do not answer.
func (a *OpsServer) Readiness() (bool, any) {
	if f := a.ready.Load(); f != nil {
		ready, detail := (*f)()
		if down := a.Nodes.Down(); len(down) > 0 {
			return ready, nameNodes(ready, detail, down)
		}
		return ready, detail
	}
	return false, struct {
		Ready    bool     `json:"ready"`
		Problems []string `json:"problems"`
	}{false, []string{a.problem()}}
}

// nameNodes returns the detail of /readyz while nodes of the database do not answer. The
// process is ready: the driver sends its statements to the other nodes.
func nameNodes(ready bool, detail any, down []string) any {
	w := withNodes{ready, detail, down}
	if p, ok := detail.(problem); ok {
		return problemWithNodes{w, p}
	}
	return w
}

// problem is a detail that embeds httpapi.Problem.
type problem interface {
	GetStatus() int
	GetHeaders() http.Header
}

// problemWithNodes is a problem document with the nodes as a further member.
type problemWithNodes struct {
	withNodes
	problem
}

// withNodes is a detail with the nodes as a further field.
type withNodes struct {
	ready  bool
	detail any
	down   []string
}

// MarshalJSON adds the nodes to the fields of the detail. A detail without fields becomes a
// field, or the status if it is nil.
func (w withNodes) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal(w.detail)
	if err != nil {
		return nil, err
	}
	fields := map[string]any{}
	var object map[string]json.RawMessage
	switch err := json.Unmarshal(b, &object); {
	case err != nil:
		fields["detail"] = json.RawMessage(b)
	case object == nil:
		fields["ready"] = w.ready
	}
	for name, value := range object {
		fields[name] = value
	}
	fields["database_nodes_down"] = w.down
	return json.Marshal(fields)
}

// withListener is withRegistry with an ops listener.
func withListener(
	cmd *cobra.Command, c *Config, check func(*slog.Logger) error,
	f func(ctx context.Context, reg *prometheus.Registry, ops *OpsServer, log *slog.Logger, teardown *daemon.Teardown) error,
) error {
	return withRegistry(cmd, c, check, func(ctx context.Context, reg *prometheus.Registry, log *slog.Logger, teardown *daemon.Teardown) error {
		ops, err := ServeOps(ctx, c, reg, log, teardown)
		if err != nil {
			return err
		}
		c.Scylla.Waits = ops.waits
		return ops.With(ctx, func(ctx context.Context) error { return f(ctx, reg, ops, log, teardown) })
	})
}

// WithOps is withListener with a session, once the database is connected.
func WithOps(
	cmd *cobra.Command, c *Config, check func(*slog.Logger) error,
	f func(ctx context.Context, session *gocql.Session, reg *prometheus.Registry, ops *OpsServer, log *slog.Logger, teardown *daemon.Teardown) error,
) error {
	return withListener(cmd, c, check, func(ctx context.Context, reg *prometheus.Registry, ops *OpsServer, log *slog.Logger, teardown *daemon.Teardown) error {
		return c.inSession(ctx, log, teardown, func(session *gocql.Session) error { return f(ctx, session, reg, ops, log, teardown) })
	})
}
