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
	"github.com/scylla-outbox/scylla-outbox/subscriptions/api"
)

// AdminGate returns the access control of the admin API: the principals and their roles.
func (c *Config) AdminGate(log *slog.Logger) (*access.Gate, error) {
	a := &c.Admin
	tokens, err := readTokens("admin.tokens", a.Tokens)
	if err != nil {
		return nil, cli.WithHint(err, tokenHint)
	}
	g, err := access.New(access.Config{
		Tokens: tokens, Logger: log,
		OIDC: access.OIDC{
			Issuer: a.OIDCIssuer, Audience: a.OIDCAudience, RoleClaim: a.OIDCRoleClaim,
			ClientSecret: a.OIDCClientSecret, ConsoleURL: c.Notifications.ConsoleURL,
		},
	})
	if err != nil {
		if a.OIDCIssuer != "" || a.OIDCClientSecret != "" {
			return nil, cli.WithHint(fmt.Errorf("admin.tokens, admin.oidc_issuer, admin.oidc_client_secret: %w", err), "docs/security.md has an example of the sign-in")
		}
		return nil, cli.WithHint(fmt.Errorf("admin.tokens: %w", err), tokenHint)
	}
	return g, nil
}

// StartAdmin starts the admin API on the listener that listen opens; the API answers when
// StartAdmin returns. It ends with ctx, or by Shutdown. beside contains the services of
// other APIs in the same process; with nil the admin API creates its own, with orders if the
// keyspace has them, and runs the continuous verification.
func StartAdmin(ctx context.Context, c *Config, gate *access.Gate, session *gocql.Session, beside *Services, reg prometheus.Registerer, log *slog.Logger, listen Listening) (_ *API, err error) {
	deadLetters, err := dlq.Open(session, c.Scylla.Keyspace, append(c.DLQOptions(), dlq.WithLogger(log))...)
	if err != nil {
		return nil, cli.Usage(err)
	}
	conf, err := c.apiConfig(session, log)
	if err != nil {
		return nil, err
	}
	conf.DeadLetters, conf.Gate, conf.Registerer, conf.Logger = deadLetters, gate, reg, log
	keeper, closeArchive, err := c.OpenSweeper(ctx, deadLetters)
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
		parts := Parts{Messages: true}
		if parts.Orders, err = hasOrders(ctx, &c.Scylla, session, log); err != nil {
			return nil, err
		}
		if own, err = NewServices(ctx, c, session, parts, reg, log); err != nil {
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
	conf.Subscriptions, conf.Verification = beside.observer, c.verification(deadLetters)
	if conf.Console, err = c.Admin.console(gate, beside.orders != nil); err != nil {
		return nil, err
	}
	conf.Archive, conf.Routes = keeper, append(beside.routes(), api.Operators(service, log))
	verify := func(context.Context) {}
	if own != nil {
		if verify, err = c.Verifier(session, deadLetters, reg, log); err != nil {
			return nil, err
		}
	}
	runs := jobs.RunnerConfig{Logger: log, Registerer: reg}
	if keeper != nil {
		runs.Archive = keeper
	}
	redeliverer, err := c.newRedeliverer(session, deadLetters)
	if err != nil {
		return nil, err
	}
	conf.Redeliverer, runs.Redeliverer = redeliverer, redeliverer
	runner := jobs.NewRunner(jobs.New(deadLetters), runs)
	conf.JobWaits = runner.Wake
	server, err := admin.New(conf)
	if err != nil {
		return nil, err
	}
	ln, err := listen(ctx, log)
	if err != nil {
		return nil, err
	}
	return start(ctx, ln, server.Readiness, func(running context.Context, ln net.Listener) error {
		// A process that creates jobs also runs them; of several runners one takes each job.
		working, stopJobs := context.WithCancel(context.WithoutCancel(running))
		ran := make(chan error, 1)
		go func() { ran <- runner.Run(working) }()
		verified := make(chan struct{})
		go func() { verify(working); close(verified) }()
		err := server.Serve(running, ln)
		stopJobs()
		<-verified
		return errors.Join(err, <-ran, own.Close(), closeArchive())
	}), nil
}

// apiConfig returns the configuration of the admin API without access control, dead letters,
// archive, services and console, which the caller adds.
func (c *Config) apiConfig(session *gocql.Session, log *slog.Logger) (conf admin.Config, err error) {
	var logs tableLogs
	conf = admin.Config{
		Session: session, Keyspace: c.Scylla.Keyspace, Timeout: c.Scylla.Timeout,
		Nodes: c.Scylla.Nodes, DrainDelay: c.HTTP.DrainDelay, Kafka: c.Kafka, Topics: c.readableTopics(session, log), Relay: c.Relay.Name, Tables: c.outboxTables(),
		Resharder: resharder{c, session}, Unread: c.unread(session, &logs), Written: c.written(session, &logs), Scheduled: c.scheduledFinder(session), Tracer: c.Tracer,
	}
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

// console returns the handler of the web console. gate may be nil.
func (c *AdminConfig) console(gate *access.Gate, withOrders bool) (http.Handler, error) {
	if err := console.ValidTraceURL(c.TraceURL); err != nil {
		return nil, cli.Usage(fmt.Errorf("admin.trace_url: %w", err))
	}
	return console.Handler(console.Settings{TraceURL: c.TraceURL, Orders: withOrders, SignIn: gate.SignIn()}), nil
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
