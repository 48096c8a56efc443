package main

import (
	"context"
	"log/slog"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	_ "github.com/scylla-outbox/scylla-outbox/dlq/archive/cloud"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

func newNotifierCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "notifier",
		Short: "Send notifications about dead letters and archive old ones",
		Long: `Send notifications about dead letters and move old ones to the archive, until SIGTERM.

The relay does this too; one of all processes at a time does it. Use a separate
process to keep the secrets of the targets out of the relay. Metrics are at
ops.addr.`,
		Args: cobra.NoArgs,
		RunE: app.WithConfig(runNotifier),
	}
	app.AddFlags(cmd, app.SectionScylla, app.SectionOps, app.SectionNotifications, app.SectionRetention, app.SectionLog)
	return cmd
}

func runNotifier(cmd *cobra.Command, c *app.Config) error {
	c.Scylla.Need(schema.DeadLetters)
	return app.WithOps(cmd, c, nil, func(ctx context.Context, session *gocql.Session, reg *prometheus.Registry, ops *app.OpsServer, log *slog.Logger, teardown *daemon.Teardown) error {
		u, err := app.NewUpkeep(ctx, c, session, reg, log, teardown)
		if err != nil {
			return err
		}
		ops.Works(u.Readiness)
		log.Info("watching the dead letters", "targets", len(c.Notifications.Targets), "archive", c.Archive.URL != "", "ops", ops.URL)
		return u.Run(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		})
	})
}
