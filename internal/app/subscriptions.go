package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/api"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/engine"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/forward"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

// CheckSubscriptions returns the errors of settings that need no connection.
func (c *Config) CheckSubscriptions(log *slog.Logger) error {
	_, server := c.apiServer(c.Subscriptions.Addr, nil, log)
	_, kafka := c.Kafka.Options()
	_, schemas := c.Kafka.SchemaRegistry()
	_, push := c.Destinations(log)
	var advertise error
	if c.Subscriptions.Advertise != "" {
		if err := checkURL(c.Subscriptions.Advertise); err != nil {
			advertise = cli.Usage(fmt.Errorf("subscriptions.advertise %w", err))
		}
	}
	return errors.Join(server, kafka, schemas, push, advertise)
}

// ListenSubscriptions listens on subscriptions.addr, with TLS if there is a certificate.
func (c *Config) ListenSubscriptions(ctx context.Context, log *slog.Logger) (net.Listener, error) {
	return c.HTTP.listen(ctx, log, c.Subscriptions.Addr, "subscriptions.addr", "--subscriptions-addr")
}

// advertisedURL returns the URL of a listener for other instances.
func (c *Config) advertisedURL(at net.Addr) string {
	if c.Subscriptions.Advertise != "" {
		return strings.TrimSuffix(c.Subscriptions.Advertise, "/")
	}
	scheme, host := "http", at.String()
	if c.HTTP.TLSCert != "" {
		scheme = "https"
	}
	if tcp, ok := at.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		host = net.JoinHostPort(self.Host(), fmt.Sprint(tcp.Port))
	}
	return scheme + "://" + host
}

// peerClient returns the client for requests to other instances, which may have the same
// certificate.
func (c *Config) peerClient() (*http.Client, error) {
	t := &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second, DialContext: (&net.Dialer{Timeout: 2 * time.Second}).DialContext}
	if c.HTTP.TLSCert != "" {
		roots, err := x509.SystemCertPool()
		if err != nil {
			roots = x509.NewCertPool()
		}
		pem, err := os.ReadFile(c.HTTP.TLSCert)
		if err != nil {
			return nil, fmt.Errorf("http.tls_cert: %w", err)
		}
		roots.AppendCertsFromPEM(pem)
		t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	}
	return &http.Client{Transport: t}, nil
}

// StartSubscriptions runs the subscriptions, with their API on the listener that listen
// opens; the API answers when StartSubscriptions returns. It ends with ctx, or by Shutdown.
func StartSubscriptions(ctx context.Context, c *Config, session *gocql.Session, reg prometheus.Registerer, log *slog.Logger, listen Listening) (_ *API, err error) {
	if err := c.CheckSubscriptions(log); err != nil {
		return nil, err
	}
	resources, err := c.openSubscriptions(session)
	if err != nil {
		return nil, err
	}
	deadLetters, err := dlq.Open(session, c.Scylla.Keyspace, append(c.DLQOptions(), dlq.WithLogger(log))...)
	if err != nil {
		return nil, cli.Usage(err)
	}
	key, err := c.receiptKey(ctx, resources, log)
	if err != nil {
		return nil, err
	}
	ln, err := listen(ctx, log)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ln.Close())
		}
	}()
	kafka, err := c.Kafka.Options()
	if err != nil {
		return nil, err
	}
	destinations, err := c.Destinations(log)
	if err != nil {
		return nil, err
	}
	schemas, err := c.Kafka.SchemaRegistry()
	if err != nil {
		return nil, err
	}
	instance := self.Unique()
	conf := engine.Config{
		Kafka: append(kafka, kgo.SeedBrokers(c.Kafka.Seeds...)), Store: resources, DeadLetters: deadLetters, Push: destinations,
		Instance: instance, Address: c.advertisedURL(ln.Addr()), Logger: log, Registerer: reg, Tracer: c.Tracer,
	}
	if schemas != nil {
		conf.Schemas = schemas
	}
	e, err := engine.New(conf)
	if err != nil {
		return nil, err
	}
	peers, err := c.peerClient()
	if err != nil {
		return nil, err
	}
	f, err := forward.New(forward.Config{Local: e, Instance: instance, Key: key, Reports: resources, Receipts: e, HTTP: peers, Logger: log})
	if err != nil {
		return nil, err
	}
	server, err := c.subscriptionServer(f, e, c.Trail(session, log), reg, log)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return start(ctx, ln, server.Readiness, func(ctx context.Context, ln net.Listener) error {
		running, stop := context.WithCancel(ctx)
		defer stop()
		// The engine runs until the last request is answered.
		working, stopEngine := context.WithCancel(context.WithoutCancel(running))
		ran := make(chan error, 1)
		go func() { ran <- e.Run(working); stop() }()
		err := server.Serve(running, ln)
		err = errors.Join(err, f.Close())
		stopEngine()
		return errors.Join(err, <-ran)
	}), nil
}

// Trail returns the audit trail of the database, for changes without the admin API.
func (c *Config) Trail(session *gocql.Session, log *slog.Logger) *admin.Trail {
	return admin.NewTrail(admin.Config{Session: session, Keyspace: c.Scylla.Keyspace, Timeout: c.Scylla.Timeout, Logger: log})
}

// subscriptionServer returns the API on all instances.
func (c *Config) subscriptionServer(f *forward.Service, e *engine.Engine, trail *admin.Trail, reg prometheus.Registerer, log *slog.Logger) (*api.Server, error) {
	conf, err := c.apiServer(c.Subscriptions.Addr, reg, log)
	if err != nil {
		return nil, cli.Usage(err)
	}
	// The process works; an operator has to know what it could not deliver.
	ready := func() (bool, any) {
		return true, struct {
			Problems []string `json:"problems"`
		}{e.Problems()}
	}
	return api.New(api.Config{
		Ready: ready, Service: f, Gate: conf.Gate, Hosts: conf.Hosts, Proxies: conf.Proxies, Peers: f.Handler(), Audit: trail.AuditChange,
		DrainDelay: conf.DrainDelay, Logger: log, Registerer: reg, Tracer: c.Tracer,
	})
}

// receiptKey reads the key of receipts, and retries while the database is unreachable.
func (c *Config) receiptKey(ctx context.Context, s *store.Store, log *slog.Logger) (key []byte, err error) {
	err = c.Scylla.untilUp(ctx, log, "failed to read the key of receipts; retrying", func() error {
		key, err = s.ReceiptKey(ctx)
		return err
	})
	return key, err
}
