package app

import (
	"context"
	"errors"
	"log/slog"
	"net"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/apiserver"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// API is a running HTTP API.
type API struct {
	Addr  string
	Ready httpapi.Readiness
	stop  context.CancelFunc
	done  chan error // delivers the error that ended it, once
}

// start runs serve with the listener, until ctx ends or Shutdown.
func start(ctx context.Context, ln net.Listener, ready httpapi.Readiness, serve func(context.Context, net.Listener) error) *API {
	running, stop := context.WithCancel(ctx)
	a := &API{Addr: ln.Addr().String(), Ready: ready, stop: stop, done: make(chan error, 1)}
	go func() {
		err := serve(running, ln)
		stop()
		a.done <- err
	}()
	return a
}

// Wait returns the error that ended the API, nil after a requested stop.
func (a *API) Wait() error {
	defer a.stop()
	return <-a.done
}

// Shutdown waits for requests in progress, and returns the error that ended the API.
func (a *API) Shutdown() error {
	a.stop()
	return a.Wait()
}

// serving is a server and the task beside it, on services.
type serving func(*Services) (s *apiserver.Server, task func(context.Context) error, err error)

// startWith starts an API on the listener that listen opens; the API answers when startWith
// returns. It has the services beside it in the process or, with nil, its own parts.
func startWith(
	ctx context.Context, c *Config, session *gocql.Session, beside *Services, parts Parts, reg prometheus.Registerer, log *slog.Logger, listen Listening, serve serving,
) (_ *API, err error) {
	services, closeOwn := beside, func() error { return nil }
	if beside == nil {
		if services, err = NewServices(ctx, c, session, parts, reg, log); err != nil {
			return nil, err
		}
		closeOwn = services.Close
		defer func() {
			if err != nil {
				err = errors.Join(err, closeOwn())
			}
		}()
	}
	server, task, err := serve(services)
	if err != nil {
		return nil, err
	}
	ln, err := listen(ctx, log)
	if err != nil {
		return nil, err
	}
	return start(ctx, ln, server.Readiness, func(ctx context.Context, ln net.Listener) error {
		return errors.Join(server.Serve(ctx, ln, task), closeOwn())
	}), nil
}

// apiServer returns the configuration that the servers of the APIs for programs have in common,
// for the address of one.
func (c *Config) apiServer(addr string, reg prometheus.Registerer, log *slog.Logger) (apiserver.Config, error) {
	gate, wrongTokens := c.HTTP.Gate(log)
	proxies, wrongProxies := c.HTTP.Proxies()
	hosts, wrongHosts := c.HTTP.AllowedHosts(addr)
	return apiserver.Config{
		Nodes: c.Scylla.Nodes, DrainDelay: c.HTTP.DrainDelay, Proxies: proxies, Gate: gate, Hosts: hosts, Logger: log, Tracer: c.Tracer, Registerer: reg,
	}, errors.Join(wrongTokens, wrongProxies, wrongHosts)
}

// newServer returns the server of an API for programs at an address.
func (c *Config) newServer(addr string, api apiserver.API, reg prometheus.Registerer, log *slog.Logger) (*apiserver.Server, error) {
	conf, err := c.apiServer(addr, reg, log)
	if err != nil {
		return nil, cli.Usage(err)
	}
	s, err := apiserver.New(api, conf)
	if err != nil {
		return nil, cli.Usage(err)
	}
	return s, nil
}
