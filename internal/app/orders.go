package app

import (
	"context"
	"log/slog"
	"net"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/apiserver"
)

// DefaultOrdersAddr is the default of Config.OrdersAddr.
const DefaultOrdersAddr = "127.0.0.1:8080"

// CheckOrders returns the errors of settings of the order API that need no connection.
func (c *Config) CheckOrders(log *slog.Logger) error {
	_, err := c.apiServer(c.OrdersAddr, nil, log)
	return err
}

// ListenOrders listens on OrdersAddr, with TLS if there is a certificate. Beyond loopback it
// requires TLS and tokens, unless http.insecure is set.
func (c *Config) ListenOrders(ctx context.Context, log *slog.Logger) (net.Listener, error) {
	return c.HTTP.listen(ctx, log, c.OrdersAddr, "--orders-addr", "--orders-addr")
}

// NewOrderServer returns the server of the order API.
func NewOrderServer(c *Config, s *Services, reg prometheus.Registerer, log *slog.Logger) (*apiserver.Server, error) {
	api, err := s.orders.HTTP()
	if err != nil {
		return nil, err
	}
	return c.newServer(c.OrdersAddr, api, reg, log)
}

// StartOrders starts the order API on the listener that listen opens, and sweeps the orders; the
// API answers when StartOrders returns. It ends with ctx, or by Shutdown. beside contains the
// services of another API in the same process; nil creates its own.
func StartOrders(ctx context.Context, c *Config, session *gocql.Session, beside *Services, reg prometheus.Registerer, log *slog.Logger, listen Listening) (*API, error) {
	return startWith(ctx, c, session, beside, Parts{Orders: true}, reg, log, listen, func(s *Services) (*apiserver.Server, func(context.Context) error, error) {
		server, err := NewOrderServer(c, s, reg, log)
		return server, func(ctx context.Context) error { s.orders.Sweep(ctx); return nil }, err
	})
}
