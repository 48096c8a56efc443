package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// Serving runs a command until SIGTERM: it calls f with the logger, and then runs the teardown,
// in reverse order.
func Serving(
	cmd *cobra.Command, c *Config, f func(ctx context.Context, log *slog.Logger, teardown *daemon.Teardown) error,
) (err error) {
	log, err := c.Log.Logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	if len(c.overridden) > 0 {
		log.Info("environment overrides the configuration file", "keys", c.overridden)
	}
	teardown := daemon.Teardown{Logger: log}
	defer func() { err = errors.Join(err, teardown.Run()) }()
	return f(cmd.Context(), log, &teardown)
}

// inSession calls f with a session, once the database is connected. It returns nil if ctx
// ends before.
func (c *Config) inSession(ctx context.Context, log *slog.Logger, teardown *daemon.Teardown, f func(*gocql.Session) error) error {
	session, err := c.Scylla.SessionOnceUp(ctx, c.Scylla.Keyspace, log)
	if err != nil {
		return IgnoreStop(ctx, err)
	}
	teardown.AddFunc("scylla session", func() { sessions.Close(session) })
	return f(session)
}

// withRegistry is Serving with a check of the configuration before the database is connected
// (nil for none), and a registry with the metrics of the database's requests. f opens the
// session.
func withRegistry(
	cmd *cobra.Command, c *Config, check func(*slog.Logger) error,
	f func(ctx context.Context, reg *prometheus.Registry, log *slog.Logger, teardown *daemon.Teardown) error,
) error {
	return Serving(cmd, c, func(ctx context.Context, log *slog.Logger, teardown *daemon.Teardown) error {
		_, command, _ := strings.Cut(cmd.CommandPath(), " ")
		reg := NewRegistry(command)
		// Before the check, which may create options of the clients.
		c.Observe(reg, log)
		if err := Trace(ctx, c, strings.ReplaceAll(cmd.CommandPath(), " ", "-"), log, teardown); err != nil {
			return err
		}
		if check != nil {
			if err := check(log); err != nil {
				return cli.Usage(err)
			}
		}
		return f(ctx, reg, log, teardown)
	})
}

// Observe makes the clients of the database and of Kafka, which are created later, use the
// registry and the logger. It panics if reg has their metrics already.
func (c *Config) Observe(reg prometheus.Registerer, log *slog.Logger) {
	c.Scylla.Log, c.Kafka.Log = log, log
	c.Kafka.metrics = newKafkaMetrics(reg)
	c.Scylla.Requests = NewRequests(reg)
	c.Scylla.Nodes = sessions.NewNodes(log, reg)
}

// Connect returns a session, and requires a reachable broker. disconnect closes the session; it is nil with
// an error.
func (c *Config) Connect(ctx context.Context) (session *gocql.Session, disconnect func(), err error) {
	if session, err = c.Scylla.Session(c.Scylla.Keyspace); err != nil {
		return nil, nil, err
	}
	disconnect = func() { sessions.Close(session) }
	client, err := c.Kafka.Client()
	if err == nil {
		defer client.Close()
		err = Reachable(ctx, client, c.Kafka.Seeds)
	}
	if err != nil {
		disconnect()
		return nil, nil, err
	}
	return session, disconnect, nil
}

// Reachable returns an error if no broker answers within 10 seconds; the client itself would
// retry without a limit.
func Reachable(ctx context.Context, client *kgo.Client, seeds []string) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		return cli.WithHint(fmt.Errorf("connect to Kafka at %s: %w", strings.Join(seeds, ", "), err),
			"check that it runs there and is reachable, and check SASL and TLS; --kafka-seeds or OUTBOX_KAFKA_SEEDS sets other brokers")
	}
	return nil
}

// IgnoreStop returns nil if ctx has ended, by a signal, and err otherwise.
func IgnoreStop(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// reachTimeout is the maximum wait of a command for the first answer of the broker.
const reachTimeout = 10 * time.Second

// SchemaOptions returns the options of package schema; a nil logger logs nothing.
func (c *Config) SchemaOptions(log *slog.Logger) schema.Options {
	return schema.Options{
		Keyspace:    c.Scylla.Keyspace,
		Replication: c.Scylla.Replication,
		Tablets:     schema.TabletsMode(c.Schema.Tablets),
		CDCTTL:      c.Schema.CDCTTL,
		RowTTL:      c.Schema.RowTTL,
		Logger:      log,
	}
}
