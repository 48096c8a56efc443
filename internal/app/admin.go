package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/admin/console"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/api"
)

// Gate returns the access control of the admin API: the principals and their roles.
func (c *AdminConfig) Gate(log *slog.Logger) (*access.Gate, error) {
	tokens, err := readTokens("admin.tokens", c.Tokens)
	if err != nil {
		return nil, cli.WithHint(err, tokenHint)
	}
	g, err := access.New(access.Config{
		Tokens: tokens, Logger: log,
		OIDC: access.OIDC{Issuer: c.OIDCIssuer, Audience: c.OIDCAudience, RoleClaim: c.OIDCRoleClaim},
	})
	if err != nil {
		return nil, cli.WithHint(fmt.Errorf("admin.tokens: %w", err), tokenHint)
	}
	return g, nil
}

// AdminAPI is a running admin API.
type AdminAPI struct {
	Addr  string
	Ready httpapi.Readiness
	Stop  context.CancelFunc
	done  chan error // delivers the error that ended it, once
}

// StartAdmin starts the admin API on the listener that listen opens; the API answers when
// StartAdmin returns. It ends with ctx, or by Shutdown. beside contains the services of an
// order API in the same process; with nil the admin API creates its own, and runs the
// continuous verification.
func StartAdmin(ctx context.Context, c *Config, gate *access.Gate, session *gocql.Session, beside *Services, reg prometheus.Registerer, log *slog.Logger, listen Listening) (_ *AdminAPI, err error) {
	deadLetters, err := dlq.Open(session, c.Scylla.Keyspace, append(c.DLQOptions(), dlq.WithLogger(log))...)
	if err != nil {
		return nil, cli.Usage(err)
	}
	conf, err := c.apiConfig(session, log)
	if err != nil {
		return nil, err
	}
	conf.DeadLetters, conf.Gate, conf.Registerer, conf.Logger = deadLetters, gate, reg, log
	keeper, closeArchive, err := c.Keeper(ctx, deadLetters)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeArchive())
		}
	}()
	var own *Services
	if beside == nil {
		var withOrders bool
		if withOrders, err = hasOrders(ctx, &c.Scylla, session, log); err != nil {
			return nil, err
		}
		if own, err = newServices(ctx, c, session, withOrders, reg, log); err != nil {
			return nil, err
		}
		beside = own
		defer func() {
			if err != nil {
				err = errors.Join(err, own.Close())
			}
		}()
	}
	service, err := beside.observer.open(ctx)
	if err != nil {
		return nil, err
	}
	conf.Subscriptions, conf.Unread, conf.Verification = beside.observer, c.unread(session), c.verification(deadLetters)
	if conf.Console, err = c.Admin.console(beside.orders != nil); err != nil {
		return nil, err
	}
	conf.Archive, conf.Routes = keeper, append(beside.routes(), api.Operators(service, log))
	verify := func(context.Context) {}
	if own != nil {
		if verify, err = c.Verifier(session, deadLetters, reg, log); err != nil {
			return nil, err
		}
	}
	server, err := admin.New(conf)
	if err != nil {
		return nil, err
	}
	ln, err := listen(ctx, log)
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	a := &AdminAPI{Addr: ln.Addr().String(), Ready: server.Readiness, Stop: stop, done: make(chan error, 1)}
	runs := jobs.RunnerConfig{Logger: log, Registerer: reg}
	if keeper != nil {
		runs.Archive = keeper
	}
	runner := jobs.NewRunner(jobs.New(deadLetters), runs)
	go func() {
		// A process that creates jobs also runs them; of several runners one takes each job.
		working, stopJobs := context.WithCancel(context.WithoutCancel(running))
		ran := make(chan error, 1)
		go func() { ran <- runner.Run(working) }()
		verified := make(chan struct{})
		go func() { verify(working); close(verified) }()
		err := server.Serve(running, ln)
		stopJobs()
		<-verified
		a.done <- errors.Join(err, <-ran, own.Close(), closeArchive())
	}()
	return a, nil
}

// apiConfig returns the configuration of the admin API without access control, dead letters,
// archive, services and console, which the caller adds.
func (c *Config) apiConfig(session *gocql.Session, log *slog.Logger) (conf admin.Config, err error) {
	conf = admin.Config{
		Session: session, Keyspace: c.Scylla.Keyspace, Timeout: c.Scylla.Timeout,
		Nodes: c.Scylla.Nodes, DrainDelay: c.HTTP.DrainDelay, Kafka: c.Kafka, Topics: c.readableTopics(session, log), Relay: c.Relay.Name, Tables: c.outboxTables(),
		Resharder: resharder{c, session}, Tracer: c.Tracer,
	}
	conf.Consistency, _ = c.Scylla.Consistencies()
	if conf.Registry, err = c.Kafka.SchemaRegistry(); err != nil {
		return conf, err
	}
	if conf.Proxies, err = c.HTTP.Proxies(); err != nil {
		return conf, err
	}
	if conf.Schemas, err = dlq.LoadSchemas(c.DLQ.Schemas); err != nil {
		return conf, cli.Usage(cli.WithHint(err, "dlq.schemas names the directory"))
	}
	_, err = c.Kafka.Options()
	return conf, err
}

// console returns the handler of the web console.
func (c *AdminConfig) console(withOrders bool) (http.Handler, error) {
	if err := console.ValidTraceURL(c.TraceURL); err != nil {
		return nil, cli.Usage(fmt.Errorf("admin.trace_url: %w", err))
	}
	options := []console.Option{console.WithTraceURL(c.TraceURL)}
	if withOrders {
		options = append(options, console.WithOrders())
	}
	return console.Handler(options...), nil
}

// ListenAdmin listens on admin.addr, with TLS if there is a certificate. Beyond loopback
// it requires one, unless http.insecure is set.
func (c *Config) ListenAdmin(ctx context.Context, log *slog.Logger) (net.Listener, error) {
	if err := c.HTTP.checkPair(); err != nil {
		return nil, err
	}
	ln, err := access.Listen(ctx, c.Admin.Addr, c.HTTP.TLSCert, c.HTTP.TLSKey, c.HTTP.Insecure, log)
	switch {
	case errors.Is(err, access.ErrInClear):
		return nil, cli.Usage(cli.WithHint(err, "set http.tls_cert and http.tls_key; or --http-insecure, if something else protects the connection, such as a proxy on this machine"))
	case err != nil:
		return nil, cli.PortHint(err, c.Admin.Addr, "admin.addr (--admin-addr)")
	}
	return ln, nil
}

// outboxTables returns the outbox tables of the relay.
func (c *Config) outboxTables() (out []admin.Table) {
	confs, err := c.RelayConfigs()
	if err != nil { // the relay would not start with it; show the default table
		return []admin.Table{{Keyspace: c.Scylla.Keyspace, Name: c.Relay.Table}}
	}
	for i := range confs {
		out = append(out, admin.Table{Keyspace: confs[i].TableKeyspace, Name: confs[i].Table, Mapping: confs[i].Mapping})
	}
	return out
}

// Wait returns the error that ended the API, nil after a requested stop.
func (a *AdminAPI) Wait() error {
	defer a.Stop()
	return <-a.done
}

// Shutdown waits for requests in progress, and returns the error that ended the API.
func (a *AdminAPI) Shutdown() error {
	a.Stop()
	return a.Wait()
}
