package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
)

// adminServer serves /metrics, /healthz and /readyz of a process from its start on:
// one that waits for its database is there, and says that it waits.
type adminServer struct {
	addr   string
	server *daemon.HTTPServer
	ready  atomic.Pointer[daemon.Readiness] // nil until the process works
	nodes  *sessions.Nodes                  // of the database
	waiting
}

// waiting tells why a process does not work yet: its database is not there.
type waiting struct {
	hosts []string
	why   atomic.Pointer[string] // why the database is not reached; nil before the first try
}

// serveAdmin starts it; it ends with teardown.
func (c *config) serveAdmin(ctx context.Context, reg *prometheus.Registry, log *slog.Logger, teardown *daemon.Teardown) (*adminServer, error) {
	a := &adminServer{waiting: waiting{hosts: c.Scylla.Hosts}, nodes: c.Scylla.nodes}
	s, err := daemon.ServeHTTP(ctx, c.Admin.Addr, c.Admin.handler(reg, a.readiness), log)
	if err != nil {
		return nil, withHint(err, "another process has that port; --admin-addr names another")
	}
	teardown.Add("admin server", func() error { return s.Shutdown(adminShutdown) })
	a.server, a.addr = s, s.Addr()
	return a, nil
}

// works is called when the process works; f says how from then on.
func (a *adminServer) works(f daemon.Readiness) { a.ready.Store(&f) }

// waits is told why the database is not reached.
func (w *waiting) waits(err error) {
	why := strings.TrimSpace(err.Error())
	if text := hintOf(err); text != "" {
		why += " (" + text + ")"
	}
	w.why.Store(&why)
}

// problem is what /readyz says of it.
func (w *waiting) problem() string {
	if why := w.why.Load(); why != nil {
		return "starting: ScyllaDB is waited for: " + *why
	}
	return "starting: ScyllaDB at " + strings.Join(w.hosts, ", ") + " is not connected yet"
}

func (a *adminServer) readiness() (bool, any) {
	if f := a.ready.Load(); f != nil {
		ready, detail := (*f)()
		if down := a.nodes.Down(); len(down) > 0 {
			return ready, withNodes{detail, down}
		}
		return ready, detail
	}
	return false, struct {
		Ready    bool     `json:"ready"`
		Problems []string `json:"problems"`
	}{false, []string{a.problem()}}
}

// withNodes is the detail of /readyz while nodes of the database do not answer. The
// process is ready: its statements go to the others.
type withNodes struct {
	detail any
	down   []string
}

// MarshalJSON adds the nodes to the fields of the detail.
func (w withNodes) MarshalJSON() ([]byte, error) {
	b, err := json.Marshal(w.detail)
	if err != nil {
		return nil, err
	}
	fields := map[string]any{}
	if err := json.Unmarshal(b, &fields); err != nil {
		return nil, err
	}
	fields["database_nodes_down"] = w.down
	return json.Marshal(fields)
}

// withAdmin is withRegistry with an admin server, which is there before the session is,
// and a session once the database is there. If the server ends by itself, the process
// ends: it would run on unseen.
func withAdmin(
	cmd *cobra.Command, c *config, check func(*slog.Logger) error,
	f func(ctx context.Context, session *gocql.Session, reg *prometheus.Registry, admin *adminServer, log *slog.Logger, teardown *daemon.Teardown) error,
) error {
	return withRegistry(cmd, c, check, func(ctx context.Context, reg *prometheus.Registry, log *slog.Logger, teardown *daemon.Teardown) error {
		admin, err := c.serveAdmin(ctx, reg, log, teardown)
		if err != nil {
			return err
		}
		c.Scylla.waits = admin.waits
		return admin.server.With(ctx, func(ctx context.Context) error {
			return c.inSession(ctx, log, teardown, func(session *gocql.Session) error { return f(ctx, session, reg, admin, log, teardown) })
		})
	})
}
