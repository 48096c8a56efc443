package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

func newOrdersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "orders",
		Short: "Serve the HTTP API of orders and messages",
		Args:  cobra.NoArgs,
		RunE:  app.WithConfig(runOrders),
	}
	app.AddFlags(cmd, app.OrdersSections...)
	return cmd
}

func runOrders(cmd *cobra.Command, c *app.Config) error {
	check := func(log *slog.Logger) error {
		_, gate := c.HTTP.Gate(log)
		_, proxies := c.HTTP.Proxies()
		_, hosts := c.HTTP.AllowedHosts(c.Orders.Addr)
		return errors.Join(gate, proxies, hosts)
	}
	c.Scylla.Need(schema.Components()...)
	return app.WithReception(cmd, c, check, c.ListenOrders, func(ctx context.Context, session *gocql.Session, reg *prometheus.Registry, admin *app.OpsServer, log *slog.Logger, listen app.Listening) error {
		api, err := app.StartOrders(ctx, c, session, reg, log, listen)
		if err != nil {
			return err
		}
		admin.Works(api.Ready)
		return api.Wait()
	})
}
