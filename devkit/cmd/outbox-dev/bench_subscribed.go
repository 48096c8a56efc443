package main

import (
	"context"
	"log/slog"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
)

// newBenchSubscribedCommand returns the command that runs subscriptions in a process of its
// own, as `outbox subscriptions` does.
func newBenchSubscribedCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "subscribed",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: app.WithConfig(func(cmd *cobra.Command, c *app.Config) error {
			return app.ServeAPI(cmd, c, c.CheckSubscriptions, c.ListenSubscriptions, func(ctx context.Context, session *gocql.Session, reg prometheus.Registerer, log *slog.Logger, listen app.Listening) (*app.API, error) {
				return app.StartSubscriptions(ctx, c, session, reg, log, listen)
			})
		}),
	}
	app.AddFlags(cmd, app.SubscriptionsSections...)
	return cmd
}
