package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/stream"
	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/orders"
)

// OrderAPI is a running order API.
type OrderAPI struct {
	Addr     string
	Ready    httpapi.Readiness
	Services *Services
	stop     context.CancelFunc
	done     chan error // delivers the error that ended it, once
}

// OrderServer is the order API before it listens.
type OrderServer struct {
	*orders.Server
	Services *Services
	hub      *stream.Hub
	// Watching ends when the server accepts no more requests. It ends all event streams, so
	// that the server need not wait for them.
	Watching context.Context
}

// NewOrderServer creates the order API. The caller closes its services.
func NewOrderServer(ctx context.Context, c *Config, session *gocql.Session, reg prometheus.Registerer, log *slog.Logger) (*OrderServer, error) {
	services, err := newServices(ctx, c, session, true, reg, log)
	if err != nil {
		return nil, err
	}
	hub, err := newHub(c, session, reg, log)
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
	hosts, err := c.HTTP.AllowedHosts(c.Orders.Addr)
	if err != nil {
		return nil, errors.Join(err, services.Close())
	}
	publication, err := c.Publication()
	if err != nil {
		return nil, errors.Join(err, services.Close())
	}
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	server, err := orders.NewServer(services.orders, orders.ServerConfig{
		Nodes:      c.Scylla.Nodes,
		DrainDelay: c.HTTP.DrainDelay, Stopping: stopWatching, Proxies: proxies,
		Logger: log, Tracer: c.Tracer, Gate: gate, Hosts: hosts, Routes: []func(huma.API){services.messages.Register, hub.Register}, Limited: []string{messages.Path},
		Publication: publication,
		Problems:    slices.Concat(messages.Problems(), stream.Problems()),
	})
	if err != nil {
		stopWatching()
		return nil, errors.Join(cli.Usage(err), services.Close())
	}
	return &OrderServer{server, services, hub, watching}, nil
}

// StartOrders starts the order API on the listener that listen opens; the API answers when
// StartOrders returns. It ends with ctx, or by Shutdown.
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

// Run serves on ln and sweeps the orders until ctx ends, then closes the services.
func (s *OrderServer) Run(ctx context.Context, ln net.Listener) error {
	watched := make(chan error, 1)
	go func() { watched <- s.hub.Run(s.Watching) }()
	var sweeping sync.WaitGroup
	sweeping.Go(func() { s.Services.orders.Sweep(s.Watching) })
	err := errors.Join(s.Serve(ctx, ln), <-watched)
	sweeping.Wait()
	return errors.Join(err, s.Services.Close())
}

// Wait returns the error that ended the API, nil after a requested stop.
func (a *OrderAPI) Wait() error {
	defer a.stop()
	return <-a.done
}

// Shutdown waits for requests in progress, and returns the error that ended the API.
func (a *OrderAPI) Shutdown() error {
	a.stop()
	return a.Wait()
}
