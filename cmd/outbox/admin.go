package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/scylla-outbox/scylla-outbox/console"
	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/api"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
)

func newAdminCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "admin",
		Short: "Serve the HTTP API for operators, and the web console, until SIGTERM",
		Long: `Serve the HTTP API for operators, to dead letters, relays, orders and scheduled
messages, and the web console on it at /console/, until SIGTERM. The API
describes itself at /openapi.json, and at /docs as a page. The process also runs
the jobs that are made through it, and verifies continuously that every event of the
outbox is in its topic (verify.rows_per_second); for that it needs the relay's settings.

Who may use it are admin.tokens: 'outbox token NAME --role viewer' prints a token,
and the entry for the setting, which has only its hash. Or an OpenID Connect
issuer says so: admin.oidc_issuer.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			return runAdmin(cmd, c)
		},
	}
	addFlags(cmd, sectionScylla, sectionKafka, sectionAdmin, sectionAdminAPI, sectionDLQ, sectionRetention, sectionVerify, sectionLog)
	return cmd
}

func runAdmin(cmd *cobra.Command, c *config) error {
	var gate *access.Gate
	check := func(log *slog.Logger) (err error) {
		if gate, err = c.Admin.gate(log); err != nil {
			return err
		}
		_, err = c.Admin.proxies()
		return errors.Join(err, notNegative("admin.drain_delay", c.Admin.DrainDelay))
	}
	return withReception(cmd, c, check, c.Admin.listen, func(ctx context.Context, session *gocql.Session, reg *prometheus.Registry, admin *adminServer, log *slog.Logger, listen listening) error {
		a, err := startAdmin(ctx, c, gate, session, nil, reg, log, listen)
		if err != nil {
			return err
		}
		admin.works(a.ready)
		log.Info("who may use the admin API", "addr", a.addr, "tls", c.Admin.TLSCert != "", "tokens", len(c.Admin.Tokens), "oidc", c.Admin.OIDCIssuer)
		return a.wait()
	})
}

// gate is who may use the admin API.
func (c *adminConfig) gate(log *slog.Logger) (*access.Gate, error) {
	tokens, err := readTokens("admin.tokens", c.Tokens)
	if err != nil {
		return nil, withHint(err, tokenHint)
	}
	g, err := access.New(access.Config{
		Tokens: tokens, Logger: log,
		OIDC: access.OIDC{Issuer: c.OIDCIssuer, Audience: c.OIDCAudience, RoleClaim: c.OIDCRoleClaim, RolePrefix: c.OIDCRolePrefix},
	})
	if err != nil {
		return nil, withHint(fmt.Errorf("admin.tokens: %w", err), tokenHint)
	}
	return g, nil
}

// adminAPI is a running admin API.
type adminAPI struct {
	addr  string
	ready daemon.Readiness
	stop  context.CancelFunc
	done  chan error // delivers what ended it, once
}

// startAdmin starts the admin API on what listen returns; it is there when startAdmin
// returns. It ends with ctx, or by shutdown. beside are the services of an order API in the same process;
// nil makes the admin API have its own.
func startAdmin(ctx context.Context, c *config, gate *access.Gate, session *gocql.Session, beside *services, reg prometheus.Registerer, log *slog.Logger, listen listening) (_ *adminAPI, err error) {
	opts, err := c.dlqOptions()
	if err != nil {
		return nil, err
	}
	letters, err := dlq.Open(session, c.Scylla.Keyspace, append(opts, dlq.WithLogger(log))...)
	if err != nil {
		return nil, usageError{err}
	}
	conf, err := c.apiConfig(session)
	if err != nil {
		return nil, err
	}
	conf.Letters, conf.Gate, conf.Registerer, conf.Logger = letters, gate, reg, log
	keeper, closeArchive, err := c.keeper(ctx, letters)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeArchive())
		}
	}()
	var own *services
	if beside == nil {
		if own, err = c.newServices(ctx, session, reg, log); err != nil {
			return nil, err
		}
		beside = own
		defer func() {
			if err != nil {
				err = errors.Join(err, own.close())
			}
		}()
	}
	conf.Archive, conf.Routes = keeper, beside.routes()
	verify := func(context.Context) {}
	if own != nil {
		if verify, err = c.verifier(session, letters, reg, log); err != nil {
			return nil, err
		}
	}
	server, err := api.New(conf)
	if err != nil {
		return nil, err
	}
	ln, err := listen(ctx, log)
	if err != nil {
		return nil, err
	}
	running, stop := context.WithCancel(ctx)
	a := &adminAPI{addr: ln.Addr().String(), ready: server.Readiness, stop: stop, done: make(chan error, 1)}
	jobs := dlq.RunnerConfig{Logger: log, Registerer: reg}
	if keeper != nil {
		jobs.Archive = keeper
	}
	runner := dlq.NewRunner(letters, jobs)
	go func() {
		// Whoever lets jobs be made sees to it that somebody runs them; of several
		// runners one takes each.
		working, stopJobs := context.WithCancel(context.WithoutCancel(running))
		ran := make(chan error, 1)
		go func() { ran <- runner.Run(working) }()
		verified := make(chan struct{})
		go func() { verify(working); close(verified) }()
		err := server.Serve(running, ln)
		stopJobs()
		<-verified
		a.done <- errors.Join(err, <-ran, own.close(), closeArchive())
	}()
	return a, nil
}

// apiConfig is what the configuration says of the admin API. Who may use it, the
// letters, the archive and the services beside it are for who starts it.
func (c *config) apiConfig(session *gocql.Session) (conf api.Config, err error) {
	conf = api.Config{
		Session: session, Keyspace: c.Scylla.Keyspace, Timeout: c.Scylla.Timeout,
		NodesDown: c.Scylla.nodes.Down, DrainDelay: c.Admin.DrainDelay, Kafka: c.Kafka.client, Relay: c.Relay.Name, Tables: c.outboxTables(),
	}
	if conf.Consistency, _, err = c.Scylla.consistencies(); err != nil {
		return conf, err
	}
	if conf.Proxies, err = c.Admin.proxies(); err != nil {
		return conf, err
	}
	if conf.Console, err = c.Admin.console(); err != nil {
		return conf, err
	}
	if conf.Schemas, err = dlq.LoadSchemas(c.DLQ.Schemas); err != nil {
		return conf, usageError{withHint(err, "dlq.schemas names the directory")}
	}
	if _, err = c.Kafka.options(); err != nil {
		return conf, err
	}
	conf.Deliveries, err = c.deliveries(session)
	return conf, err
}

// console serves the web console.
func (c *adminConfig) console() (http.Handler, error) {
	if err := console.ValidTraceURL(c.TraceURL); err != nil {
		return nil, usageError{fmt.Errorf("admin.trace_url: %w", err)}
	}
	return console.Handler(console.WithTraceURL(c.TraceURL), console.WithOrders()), nil
}

// listen listens where the configuration says.
func (c *adminConfig) listen(ctx context.Context, log *slog.Logger) (net.Listener, error) {
	ln, err := access.Listen(ctx, c.APIAddr, c.TLSCert, c.TLSKey, c.Insecure, log)
	switch {
	case errors.Is(err, access.ErrInClear):
		return nil, usageError{withHint(err, "set admin.tls_cert and admin.tls_key; or --admin-insecure, if something else protects the way, such as a proxy on this machine")}
	case err != nil:
		return nil, portHint(err, c.APIAddr, "admin.api_addr (--admin-api-addr)")
	}
	return ln, nil
}

// outboxTables are the outbox tables of the configuration's relay.
func (c *config) outboxTables() (out []api.Table) {
	confs, err := c.relayConfigs()
	if err != nil { // the relay would not run with it; what is known without it is shown nevertheless
		return []api.Table{{Keyspace: c.Scylla.Keyspace, Name: c.Relay.Table}}
	}
	for i := range confs {
		out = append(out, api.Table{Keyspace: confs[i].TableKeyspace, Name: confs[i].Table, Mapping: confs[i].Mapping})
	}
	return out
}

// wait returns what ended the API; nil after a requested stop.
func (a *adminAPI) wait() error {
	defer a.stop()
	return <-a.done
}

// shutdown lets the requests under way finish and returns.
func (a *adminAPI) shutdown() error {
	a.stop()
	return a.wait()
}
