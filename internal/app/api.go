package app

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/archive"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/admin/adminclient"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/messages"
	client "github.com/scylla-outbox/scylla-outbox/outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// DefaultSubscriptionsAPI is the URL of a subscriptions API with default settings.
const DefaultSubscriptionsAPI = "http://127.0.0.1:8082"

// Client returns a client of the admin API at api.admin_url. Errors are of usage, and do not
// contain the token.
func (c *APIConfig) Client() (*adminclient.Client, error) {
	if c.Token == "" {
		return nil, cli.Usage(cli.WithHint(errors.New("api.token is empty: set OUTBOX_API_TOKEN to a token of the admin API, or to file:PATH"), tokenHint))
	}
	s, err := c.server(c.AdminURL, "api.admin_url (--api-admin-url)")
	if err != nil {
		return nil, cli.Usage(err)
	}
	return adminclient.New(s.url, s.token, s.tls), nil
}

// SubscriptionsClient returns a client of the subscriptions API at api.subscriptions_url, by
// default that of api.admin_url, or of this machine. The admin API has its operations for
// operators too, and records the reason of a change. Errors are of usage, and do not contain the token.
func (c *APIConfig) SubscriptionsClient(reason string) (*client.Client, error) {
	s, err := c.server(cmp.Or(c.SubscriptionsURL, c.AdminURL, DefaultSubscriptionsAPI), "api.subscriptions_url (--api-subscriptions-url)")
	if err != nil {
		return nil, cli.Usage(err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = s.tls
	return &client.Client{URL: strings.TrimSuffix(s.url.String(), "/"), Token: s.token, HTTP: &http.Client{Transport: reasoned{transport, reason}}}, nil
}

// reasoned adds the reason of changes to requests.
type reasoned struct {
	next   http.RoundTripper
	reason string
}

// RoundTrip implements http.RoundTripper.
func (r reasoned) RoundTrip(req *http.Request) (*http.Response, error) {
	if r.reason != "" {
		req = req.Clone(req.Context())
		req.Header.Set(httpapi.ReasonHeader, url.PathEscape(r.reason))
	}
	return r.next.RoundTrip(req)
}

// apiServer is the server of an API.
type apiServer struct {
	url   *url.URL
	token string // empty for none
	tls   *tls.Config
}

// server returns the server at the URL of a setting, which errors name. The token is not sent unencrypted beyond loopback.
func (c *APIConfig) server(at, key string) (s apiServer, err error) {
	s.url, err = url.Parse(at)
	switch {
	case err != nil || s.url.Host == "" || s.url.Scheme != "http" && s.url.Scheme != "https":
		return s, fmt.Errorf("%s is no URL: use one such as https://outbox.example.com:8090", key)
	case s.url.User != nil:
		return s, fmt.Errorf("%s contains a user: remove it, and set the token by OUTBOX_API_TOKEN", key)
	case c.Token != "" && !access.Private(s.url):
		return s, fmt.Errorf("%s %s would send the token unencrypted: use https, or a tunnel to a port of this machine", key, s.url)
	}
	s.token = c.Token
	s.tls, err = tlsConfig{TLS: true, TLSCA: c.TLSCA}.config("api", nil)
	return s, err
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
	// Needs are the components that the command needs.
	Needs []schema.Component
	// Actor is the principal of all requests, with the role admin: the permissions of the
	// database user apply.
	Actor string
	// Archive opens archive.url, and Schemas reads dlq.schemas and kafka.schema_registry.
	Archive, Schemas bool
	// Topics reads the topics and the subscriptions, for the history of an event and the status.
	Topics bool
	// Runner configures the runner, without its archive.
	Runner jobs.RunnerConfig
	// Logger logs failed requests.
	Logger *slog.Logger
}

// statusPatience bounds the wait for a part of the status that a command prints: it has no later one, and its
// statements are prepared first, which takes as long again.
const statusPatience = 10 * time.Second

// OpenLocalAPI connects to the database. The caller closes the API. Requests have the error of a keyspace that is
// missing or lacks a component: it is checked while they read, and before they change anything.
func OpenLocalAPI(ctx context.Context, c *Config, local LocalConfig) (_ *LocalAPI, err error) {
	c.Scylla.Need(local.Needs...)
	scheduled := local.Topics || slices.Contains(local.Needs, schema.Schedule) // whose statements name no keyspace
	session, checked, err := c.Scylla.BriefSession(c.Scylla.Keyspace, scheduled)
	if err != nil {
		return nil, err
	}
	local.Logger = slog.New(checkedLog{local.Logger.Handler(), checked})
	// What requests need is prepared and read while the keyspace is checked, and the CDC logs in the meantime of both.
	reading, stop := context.WithCancel(ctx)
	var prepared, read sync.WaitGroup
	disconnect := func() {
		stop()
		prepared.Wait()
		read.Wait()
		_ = checked() // every request had its error
		sessions.Close(session)
	}
	closeArchive := func() error { return nil }
	defer func() {
		if err != nil {
			err = errors.Join(err, closeArchive())
			disconnect()
		}
	}()
	store, err := dlq.Open(session, c.Scylla.Keyspace, c.DLQOptions()...)
	if err != nil {
		return nil, err
	}
	var keeper *archive.Sweeper
	if local.Archive {
		if keeper, closeArchive, err = c.OpenSweeper(ctx, store); err != nil {
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
	watch := newObserver(c, session, local.Logger)
	prepared.Go(func() { store.PrepareReads(reading) })
	prepared.Go(func() { admin.PrepareReads(reading, session, c.Scylla.Keyspace) })
	var logs tableLogs
	if local.Topics {
		read.Go(func() { logs.readTables(reading, c, session) })
		conf.Kafka, conf.Relay, conf.Tables = c.Kafka, c.Relay.Name, c.outboxTables()
		conf.Unread, conf.Written, conf.Verification = c.unread(session, &logs), c.written(session, &logs), c.verification(store)
		if err = checked(); err != nil { // and the components of the keyspace are known
			return nil, err
		}
		if c.Scylla.Has(schema.Schedule) {
			conf.Scheduled = c.scheduledFinder(session)
		}
		if c.Scylla.Has(schema.Subscriptions) {
			conf.Subscriptions = watch
			redeliverer, err := c.newRedeliverer(session, store)
			if err != nil {
				return nil, err
			}
			conf.Redeliverer, local.Runner.Redeliverer = redeliverer, redeliverer
		}
	}
	server, err := admin.New(conf)
	if err != nil {
		return nil, err
	}
	prepared.Wait()
	return &LocalAPI{
		Client: adminclient.Local(server.Handler(), checked), Runner: jobs.NewRunner(jobs.New(store), local.Runner),
		close: func() error { defer disconnect(); return errors.Join(watch.Close(), closeArchive()) },
	}, nil
}

// checkedLog is the log of requests during the check of a keyspace. It omits what follows from the error of the check.
type checkedLog struct {
	slog.Handler
	checked func() error
}

// Handle implements slog.Handler.
func (l checkedLog) Handle(ctx context.Context, r slog.Record) error {
	if l.checked() != nil {
		return nil
	}
	return l.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (l checkedLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return checkedLog{l.Handler.WithAttrs(attrs), l.checked}
}

// WithGroup implements slog.Handler.
func (l checkedLog) WithGroup(name string) slog.Handler {
	return checkedLog{l.Handler.WithGroup(name), l.checked}
}

// api returns the configuration of the API without its archive.
func (local *LocalConfig) api(c *Config, session *gocql.Session, store *dlq.Store) (conf admin.Config, err error) {
	conf = admin.Config{
		Session: session, Keyspace: c.Scylla.Keyspace, Timeout: c.Scylla.Timeout, DeadLetters: store,
		Gate: access.Only(access.Principal{Name: local.Actor, Role: access.Admin}), Logger: local.Logger,
		Resharder: resharder{c, session}, StatusPatience: statusPatience,
	}
	waiting, err := messages.NewService(session, messages.Config{Consistency: consistency, Logger: local.Logger})
	if err != nil {
		return conf, cli.Usage(err)
	}
	operators := messages.NewAPI(waiting)
	conf.Routes = append(conf.Routes, operators.RegisterKept, operators.RegisterMany)
	if local.Schemas {
		if conf.Schemas, err = dlq.LoadSchemas(c.DLQ.Schemas); err != nil {
			return conf, cli.Usage(cli.WithHint(err, "dlq.schemas names the directory"))
		}
		if conf.Registry, err = c.Kafka.SchemaRegistry(); err != nil {
			return conf, err
		}
	}
	return conf, nil
}

// Close closes the archive and the session.
func (a *LocalAPI) Close() error { return a.close() }
