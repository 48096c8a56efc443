package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/internal/stream"
	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/orders"
)

// OrderAPI is a running order API.
type OrderAPI struct {
	Addr     string
	Ready    daemon.Readiness
	Services *Services
	stop     context.CancelFunc
	done     chan error // delivers what ended it, once
}

// OrderServer is the order API before it listens.
type OrderServer struct {
	*orders.Server
	Services *Services
	hub      *stream.Hub
	// Watching ends when the server takes no more requests, and with it all that is
	// being watched, so that the server need not wait for that.
	Watching context.Context
}

// NewOrderServer puts the order API together. Its services must be closed.
func NewOrderServer(ctx context.Context, c *Config, session *gocql.Session, reg prometheus.Registerer, log *slog.Logger) (*OrderServer, error) {
	services, err := newServices(ctx, c, session, reg, log)
	if err != nil {
		return nil, err
	}
	hub, err := newHub(c, reg, log)
	if err != nil {
		return nil, errors.Join(err, services.Close())
	}
	gate, err := c.HTTP.Gate(log)
	if err != nil {
		return nil, errors.Join(cli.Usage(err), services.Close())
	}
	proxies, err := c.HTTP.Proxies()
	if err != nil {
		return nil, errors.Join(err, services.Close())
	}
	hosts, err := c.HTTP.AllowedHosts()
	if err != nil {
		return nil, errors.Join(err, services.Close())
	}
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	server, err := orders.NewServer(services.orders, orders.ServerConfig{
		NodesDown:  c.Scylla.Nodes.Down,
		DrainDelay: c.HTTP.DrainDelay, Stopping: stopWatching, Proxies: proxies,
		Logger: log, Gate: gate, Hosts: hosts, Routes: []func(huma.API){services.messages.Register, hub.Register},
		Problems: slices.Concat(messages.Problems(), stream.Problems()),
	})
	if err != nil {
		stopWatching()
		return nil, errors.Join(cli.Usage(err), services.Close())
	}
	return &OrderServer{server, services, hub, watching}, nil
}

// StartOrders starts the order API on what listen returns; it is there when
// startOrders returns. It ends with ctx, or by shutdown.
func StartOrders(ctx context.Context, c *Config, session *gocql.Session, reg prometheus.Registerer, log *slog.Logger, listen Listening) (*OrderAPI, error) {
	server, err := NewOrderServer(ctx, c, session, reg, log)
	if err != nil {
		return nil, err
	}
	ln, err := listen(ctx, log)
	if err != nil {
		return nil, errors.Join(err, server.Services.Close())
	}
	running, stop := context.WithCancel(ctx)
	api := &OrderAPI{Addr: ln.Addr().String(), Ready: server.Readiness, Services: server.Services, stop: stop, done: make(chan error, 1)}
	go func() {
		err := server.Run(running, ln)
		stop()
		api.done <- err
	}()
	return api, nil
}

// Run serves on ln until ctx ends, and closes the services.
func (s *OrderServer) Run(ctx context.Context, ln net.Listener) error {
	watched := make(chan error, 1)
	go func() { watched <- s.hub.Run(s.Watching) }()
	err := s.Serve(ctx, ln)
	return errors.Join(err, <-watched, s.Services.Close())
}

// Wait returns what ended the API; nil after a requested stop.
func (a *OrderAPI) Wait() error {
	defer a.stop()
	return <-a.done
}

// Shutdown lets the requests under way finish and returns.
func (a *OrderAPI) Shutdown() error {
	a.stop()
	return a.Wait()
}
