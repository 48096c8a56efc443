package main

import (
	"context"
	"log/slog"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

func newAdminCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "admin",
		Short: "Serve the HTTP API for operators and the web console",
		Long: `Serve the HTTP API for operators until SIGTERM: dead letters, relays, subscriptions,
scheduled messages and, if the keyspace has the component orders, orders. The web
console is at /console/, the API's description at /openapi.json and, as a page, at /docs.

The process also runs the jobs that are created through the API. It verifies
continuously that every event of the outbox is in its topic
(verify.rows_per_second); this requires the relay's settings.

Clients authenticate by a token of admin.tokens, or by a JWT of admin.oidc_issuer.
'outbox token NAME --role viewer' prints a token and its entry for the setting.`,
		Args: cobra.NoArgs,
		RunE: app.WithConfig(runAdmin),
	}
	app.AddFlags(cmd, app.SectionScylla, app.SectionKafka, app.SectionOps, app.SectionAdmin, app.SectionServer, app.SectionWatch, app.SectionDLQ, app.SectionRetention, app.SectionVerify, app.SectionLog)
	return cmd
}

func runAdmin(cmd *cobra.Command, c *app.Config) error {
	var gate *access.Gate
	check := func(log *slog.Logger) (err error) {
		if gate, err = c.AdminGate(log); err != nil {
			return err
		}
		_, err = c.HTTP.Proxies()
		return err
	}
	c.Scylla.Need(schema.DeadLetters, schema.Schedule, schema.Subscriptions)
	return app.ServeAPI(cmd, c, check, c.ListenAdmin, func(ctx context.Context, session *gocql.Session, reg prometheus.Registerer, log *slog.Logger, listen app.Listening) (*app.API, error) {
		a, err := app.StartAdmin(ctx, c, gate, session, nil, reg, log, listen)
		if err == nil {
			log.Info("admin API serving", "addr", a.Addr, "tls", c.HTTP.TLSCert != "", "tokens", len(c.Admin.Tokens), "oidc", c.Admin.OIDCIssuer)
		}
		return a, err
	})
}
