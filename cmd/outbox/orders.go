package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/orders"
	"github.com/scylla-outbox/scylla-outbox/watch"
)

func newOrdersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "orders",
		Short: "Serve the API of orders and messages, until SIGTERM",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			return runOrders(cmd, c)
		},
	}
	addFlags(cmd, sectionScylla, sectionKafka, sectionHTTP, sectionMessages, sectionWatch, sectionAdmin, sectionLog)
	return cmd
}

func runOrders(cmd *cobra.Command, c *config) error {
	check := func(log *slog.Logger) error {
		_, gate := c.HTTP.gate(log)
		_, proxies := c.HTTP.proxies()
		_, hosts := c.HTTP.hosts()
		return errors.Join(gate, proxies, hosts, notNegative("http.drain_delay", c.HTTP.DrainDelay))
	}
	return withReception(cmd, c, check, c.HTTP.listen, func(ctx context.Context, session *gocql.Session, reg *prometheus.Registry, admin *adminServer, log *slog.Logger, listen listening) error {
		api, err := startOrders(ctx, c, session, reg, log, listen)
		if err != nil {
			return err
		}
		admin.works(api.ready)
		return api.wait()
	})
}

// orderAPI is a running order API.
type orderAPI struct {
	addr     string
	ready    daemon.Readiness
	services *services
	stop     context.CancelFunc
	done     chan error // delivers what ended it, once
}

// orderServer is the order API before it listens.
type orderServer struct {
	*orders.Server
	services *services
	hub      *watch.Hub
	// watching ends when the server takes no more requests, and with it all that is
	// being watched, so that the server need not wait for that.
	watching context.Context
}

// newOrderServer puts the order API together. Its services must be closed.
func (c *config) newOrderServer(ctx context.Context, session *gocql.Session, reg prometheus.Registerer, log *slog.Logger) (*orderServer, error) {
	services, err := c.newServices(ctx, session, reg, log)
	if err != nil {
		return nil, err
	}
	hub, err := c.newHub(reg, log)
	if err != nil {
		return nil, errors.Join(err, services.close())
	}
	gate, err := c.HTTP.gate(log)
	if err != nil {
		return nil, errors.Join(usageError{err}, services.close())
	}
	proxies, err := c.HTTP.proxies()
	if err != nil {
		return nil, errors.Join(err, services.close())
	}
	hosts, err := c.HTTP.hosts()
	if err != nil {
		return nil, errors.Join(err, services.close())
	}
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	server, err := orders.NewServer(services.orders, orders.ServerConfig{
		NodesDown:  c.Scylla.nodes.Down,
		DrainDelay: c.HTTP.DrainDelay, DrainTimeout: c.HTTP.ShutdownTimeout, Stopping: stopWatching, Proxies: proxies,
		Logger: log, Gate: gate, Hosts: hosts, Routes: []func(huma.API){services.messages.Register, hub.Register},
		Problems: slices.Concat(messages.Problems(), watch.Problems()),
	})
	if err != nil {
		stopWatching()
		return nil, errors.Join(usageError{err}, services.close())
	}
	return &orderServer{server, services, hub, watching}, nil
}

// startOrders starts the order API on what listen returns; it is there when
// startOrders returns. It ends with ctx, or by shutdown.
func startOrders(ctx context.Context, c *config, session *gocql.Session, reg prometheus.Registerer, log *slog.Logger, listen listening) (*orderAPI, error) {
	server, err := c.newOrderServer(ctx, session, reg, log)
	if err != nil {
		return nil, err
	}
	ln, err := listen(ctx, log)
	if err != nil {
		return nil, errors.Join(err, server.services.close())
	}
	running, stop := context.WithCancel(ctx)
	api := &orderAPI{addr: ln.Addr().String(), ready: server.Readiness, services: server.services, stop: stop, done: make(chan error, 1)}
	go func() {
		err := server.run(running, ln)
		stop()
		api.done <- err
	}()
	return api, nil
}

// run serves on ln until ctx ends, and closes the services.
func (s *orderServer) run(ctx context.Context, ln net.Listener) error {
	watched := make(chan error, 1)
	go func() { watched <- s.hub.Run(s.watching) }()
	err := s.Serve(ctx, ln)
	return errors.Join(err, <-watched, s.services.close())
}

// wait returns what ended the API; nil after a requested stop.
func (a *orderAPI) wait() error {
	defer a.stop()
	return <-a.done
}

// shutdown lets the requests under way finish and returns.
func (a *orderAPI) shutdown() error {
	a.stop()
	return a.wait()
}
