package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/archive"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/admin/adminclient"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/notify"
)

// Client returns a client of the admin API at api.url. Errors are of usage, and do not
// contain the token.
func (c *APIConfig) Client() (*adminclient.Client, error) {
	at, err := url.Parse(c.URL)
	switch {
	case err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https":
		return nil, cli.Usage(errors.New("api.url (--api) is no URL: use one such as https://outbox.example.com:8090"))
	case at.User != nil:
		return nil, cli.Usage(errors.New("api.url (--api) contains a user: remove it, and set the token by OUTBOX_API_TOKEN"))
	case at.Scheme == "http" && !isLoopback(at.Hostname()) && !c.Insecure:
		return nil, cli.Usage(fmt.Errorf("api.url (--api) %s would send the token unencrypted: use https, or --api-insecure if something else protects the connection", at))
	case c.Token == "":
		return nil, cli.Usage(cli.WithHint(errors.New("api.token is empty: set OUTBOX_API_TOKEN to a token of the admin API, or to file:PATH"), tokenHint))
	}
	token, err := notify.Reveal(c.Token)
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("api.token (OUTBOX_API_TOKEN): %w", err))
	}
	conf, err := tlsConfig{TLS: true, TLSCA: c.TLSCA}.config("api")
	if err != nil {
		return nil, cli.Usage(err)
	}
	return adminclient.New(at, token, conf), nil
}

// isLoopback reports whether a host name is of this machine.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// LocalAPI is the admin API of the configured database in this process, for one command.
type LocalAPI struct {
	Client *adminclient.Client
	// Runner runs the jobs that the command creates.
	Runner *jobs.Runner
	close  func() error
}

// LocalConfig configures a LocalAPI.
type LocalConfig struct {
	// Actor is the principal of all requests, with the role admin: the permissions are
	// those of the database user.
	Actor string
	// Archive opens retention.archive, and Schemas reads dlq.schemas.
	Archive, Schemas bool
	// Runner configures the runner, without its archive.
	Runner jobs.RunnerConfig
	// Logger logs failed requests.
	Logger *slog.Logger
}

// OpenLocalAPI connects to the database. The caller closes the API.
func OpenLocalAPI(ctx context.Context, c *Config, local LocalConfig) (_ *LocalAPI, err error) {
	store, session, closeSession, err := c.DLQStore()
	if err != nil {
		return nil, err
	}
	closeArchive := func() error { return nil }
	defer func() {
		if err != nil {
			err = errors.Join(err, closeArchive())
			closeSession()
		}
	}()
	var keeper *archive.Keeper
	if local.Archive {
		if keeper, closeArchive, err = c.Keeper(ctx, store); err != nil {
			return nil, err
		}
	}
	conf, err := local.api(c, session, store)
	if err != nil {
		return nil, err
	}
	if keeper != nil {
		conf.Archive, local.Runner.Archive = keeper, keeper
	}
	server, err := admin.New(conf)
	if err != nil {
		return nil, err
	}
	return &LocalAPI{
		Client: adminclient.Local(server.Handler()), Runner: jobs.NewRunner(jobs.New(store), local.Runner),
		close: func() error { defer closeSession(); return closeArchive() },
	}, nil
}

// api returns the configuration of the API without its archive.
func (local *LocalConfig) api(c *Config, session *gocql.Session, store *dlq.Store) (conf admin.Config, err error) {
	conf = admin.Config{
		Session: session, Keyspace: c.Scylla.Keyspace, Timeout: c.Scylla.Timeout, DeadLetters: store,
		Gate: access.Only(access.Principal{Name: local.Actor, Role: access.Admin}), Logger: local.Logger,
	}
	conf.Consistency, _ = c.Scylla.Consistencies()
	if local.Schemas {
		if conf.Schemas, err = dlq.LoadSchemas(c.DLQ.Schemas); err != nil {
			return conf, cli.Usage(cli.WithHint(err, "dlq.schemas names the directory"))
		}
	}
	return conf, nil
}

// Close closes the archive and the session.
func (a *LocalAPI) Close() error { return a.close() }
