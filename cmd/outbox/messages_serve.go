package main

import (
	"context"
	"log/slog"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

func runMessages(cmd *cobra.Command, c *app.Config) error {
	c.Scylla.Need(schema.Schedule)
	return app.ServeAPI(cmd, c, c.CheckMessages, c.ListenMessages, func(ctx context.Context, session *gocql.Session, reg prometheus.Registerer, log *slog.Logger, listen app.Listening) (*app.API, error) {
		return app.StartMessages(ctx, c, session, nil, reg, log, listen)
	})
}
