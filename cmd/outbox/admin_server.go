package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
)

// adminServer serves /metrics, /healthz and /readyz of a process from its start on:
// one that waits for its database is there, and says that it waits.
type adminServer struct {
	addr   string
	server *daemon.HTTPServer
	hosts  []string
	ready  atomic.Pointer[daemon.Readiness] // nil until the process works
	why    atomic.Pointer[string]           // why the database is not reached; nil before the first try
}

// serveAdmin starts it; it ends with teardown.
func (c *config) serveAdmin(ctx context.Context, reg *prometheus.Registry, log *slog.Logger, teardown *daemon.Teardown) (*adminServer, error) {
	a := &adminServer{hosts: c.Scylla.Hosts}
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
func (a *adminServer) waits(err error) {
	why := strings.TrimSpace(err.Error())
	a.why.Store(&why)
}

func (a *adminServer) readiness() (bool, any) {
	if f := a.ready.Load(); f != nil {
		return (*f)()
	}
	problem := "starting: ScyllaDB at " + strings.Join(a.hosts, ", ") + " is not connected yet"
	if why := a.why.Load(); why != nil {
		problem = fmt.Sprintf("starting: ScyllaDB is waited for: %s", *why)
	}
	return false, struct {
		Ready    bool     `json:"ready"`
		Problems []string `json:"problems"`
	}{false, []string{problem}}
}

// withAdmin is withSession with an admin server that is there before the session is.
// If that ends by itself, the process ends: it would run on unseen.
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
