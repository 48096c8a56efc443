package app

import (
	"context"
	"log/slog"
	"net"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// Listening opens the listener of an API.
type Listening func(context.Context, *slog.Logger) (net.Listener, error)

// ServeAPI is withListener for an API: it listens before the database is connected, and answers
// 503 until then. start then starts the API on the listener of its Listening. ServeAPI returns
// the error that ended the API.
func ServeAPI(
	cmd *cobra.Command, c *Config, check func(*slog.Logger) error, listen Listening,
	start func(ctx context.Context, session *gocql.Session, reg prometheus.Registerer, log *slog.Logger, listen Listening) (*API, error),
) error {
	return withListener(cmd, c, check, func(ctx context.Context, reg *prometheus.Registry, ops *OpsServer, log *slog.Logger, teardown *daemon.Teardown) error {
		ln, err := listen(ctx, log)
		if err != nil {
			return err
		}
		r := httpapi.Receive(ln, access.WithRequestIDs(access.WithSecureHeaders(httpapi.Starting(ops.problem))), log)
		teardown.Add("listener", r.Close)
		log.Info("listening; answering 503 until the database is connected", "addr", ln.Addr().String(), "ops", ops.URL)
		return c.inSession(ctx, log, teardown, func(session *gocql.Session) error {
			api, err := start(ctx, session, reg, log, func(context.Context, *slog.Logger) (net.Listener, error) { return r.HandOver(), nil })
			if err != nil {
				return err
			}
			ops.Works(api.Ready)
			log.Info("serving", "addr", api.Addr, "ops", ops.URL)
			return api.Wait()
		})
	})
}
