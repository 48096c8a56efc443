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

func newOrdersCommand() *cobra.Command {
	var addr string
	cmd := &cobra.Command{
		Use:   "orders",
		Short: "Serve the HTTP API of orders, the example of a service",
		Long: `Serve the HTTP API of orders, the example of a service with an outbox, until SIGTERM.

Its tables are those of the component orders: 'outbox schema migrate --components orders'.`,
		Args: cobra.NoArgs,
		RunE: app.WithConfig(func(cmd *cobra.Command, c *app.Config) error {
			c.OrdersAddr = addr
			return runOrders(cmd, c)
		}),
	}
	cmd.Flags().StringVar(&addr, "orders-addr", app.DefaultOrdersAddr, "address of the API")
	app.AddFlags(cmd, app.OrdersSections...)
	return cmd
}

func runOrders(cmd *cobra.Command, c *app.Config) error {
	c.Scylla.Need(schema.Orders)
	return app.ServeAPI(cmd, c, c.CheckOrders, c.ListenOrders, func(ctx context.Context, session *gocql.Session, reg prometheus.Registerer, log *slog.Logger, listen app.Listening) (*app.API, error) {
		return app.StartOrders(ctx, c, session, nil, reg, log, listen)
	})
}
