package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// listening opens the listener of an API.
type listening func(context.Context, *slog.Logger) (net.Listener, error)

// withReception is withRegistry for an API: it listens before the database is there,
// and says that it waits. f has the session, and serves on what its listening returns.
// metrics is whether everybody may see the metrics meanwhile.
func withReception(
	cmd *cobra.Command, c *config, check func(*slog.Logger) error, listen listening, metrics bool,
	f func(ctx context.Context, session *gocql.Session, reg *prometheus.Registry, log *slog.Logger, listen listening) error,
) error {
	return withRegistry(cmd, c, check, func(ctx context.Context, reg *prometheus.Registry, log *slog.Logger, teardown *daemon.Teardown) error {
		ln, err := listen(ctx, log)
		if err != nil {
			return err
		}
		w := &waiting{hosts: c.Scylla.Hosts}
		c.Scylla.waits = w.waits
		var shown http.Handler
		if metrics {
			shown = promhttp.HandlerFor(reg, promhttp.HandlerOpts{})
		}
		r := httpapi.Receive(ln, access.WithRequestIDs(access.WithSecureHeaders(httpapi.Starting(w.problem, shown))), log)
		teardown.Add("listener", r.Close)
		log.Info("listening; all but /healthz is 503 until the database is there", "addr", ln.Addr().String())
		return c.inSession(ctx, log, teardown, func(session *gocql.Session) error {
			return f(ctx, session, reg, log, func(context.Context, *slog.Logger) (net.Listener, error) { return r.HandOver(), nil })
		})
	})
}

// notNegative returns an error if a setting of time is negative.
func notNegative(setting string, d time.Duration) error {
	if d < 0 {
		return fmt.Errorf("%s %s: must not be negative; 0 is none", setting, d)
	}
	return nil
}
