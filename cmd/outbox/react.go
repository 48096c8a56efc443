package main

import (
	"context"
	"log/slog"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
)

func newReactCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "react",
		Short: "Deliver events to notification targets by rules",
		Long: `Deliver events to notification targets by rules, until SIGTERM.

The rules are react.rules in the configuration file. A rule contains topics, event
types, a CEL expression over the event, and a target: e-mail, Slack and others by
shoutrrr URL, a signed webhook, or the log. Each rule has its own consumer group,
queue, attempts and timeout. Several processes share the work. 'outbox deliveries'
lists the deliveries. Metrics are at admin.addr.`,
		Args: cobra.NoArgs,
		RunE: app.WithConfig(runReact),
	}
	app.AddFlags(cmd, app.SectionScylla, app.SectionKafka, app.SectionReact, app.SectionAdmin, app.SectionLog)
	return cmd
}

func runReact(cmd *cobra.Command, c *app.Config) error {
	// The rules are checked before the database is connected.
	check := func(log *slog.Logger) error {
		_, err := c.Reactor(nil, prometheus.NewRegistry(), log)
		return err
	}
	return app.WithAdmin(cmd, c, check, func(ctx context.Context, session *gocql.Session, reg *prometheus.Registry, admin *app.AdminServer, log *slog.Logger, teardown *daemon.Teardown) error {
		store, err := c.Deliveries(session)
		if err != nil {
			return err
		}
		reactor, err := c.Reactor(store, reg, log)
		if err != nil {
			return cli.Usage(err)
		}
		admin.Works(func() (bool, any) { return true, struct{}{} })
		log.Info("delivering events", "rules", len(c.React.Rules), "targets", len(c.React.Targets), "admin", admin.URL)
		return reactor.Run(ctx)
	})
}
