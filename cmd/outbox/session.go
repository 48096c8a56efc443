package main

import (
	"context"
	"errors"
	"log/slog"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
)

// serving is how a command that runs until SIGTERM begins and ends: with a logger,
// and after f, in reverse, what f left in teardown.
func serving(
	cmd *cobra.Command, c *config, f func(ctx context.Context, log *slog.Logger, teardown *daemon.Teardown) error,
) (err error) {
	log, err := c.Log.logger(cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	teardown := daemon.Teardown{Logger: log}
	defer func() { err = errors.Join(err, teardown.Run()) }()
	return f(cmd.Context(), log, &teardown)
}

// inSession calls f with a session once the database is there. A ctx that ends
// before is no error.
func (c *config) inSession(ctx context.Context, log *slog.Logger, teardown *daemon.Teardown, f func(*gocql.Session) error) error {
	session, err := c.Scylla.sessionOnceUp(ctx, c.Scylla.Keyspace, log)
	if err != nil {
		return stopped(ctx, err)
	}
	teardown.AddFunc("scylla session", func() { sessions.Close(session) })
	return f(session)
}

// withRegistry is serving with a check of what can be said before the database is
// there (nil for none), and a registry in which what is asked of the database is
// counted. f asks for the session.
func withRegistry(
	cmd *cobra.Command, c *config, check func(*slog.Logger) error,
	f func(ctx context.Context, reg *prometheus.Registry, log *slog.Logger, teardown *daemon.Teardown) error,
) error {
	return serving(cmd, c, func(ctx context.Context, log *slog.Logger, teardown *daemon.Teardown) error {
		if check != nil {
			if err := check(log); err != nil {
				return usageError{err}
			}
		}
		reg := newRegistry()
		c.Scylla.requests = newRequests(reg)
		c.Scylla.nodes = sessions.NewNodes(log, reg)
		return f(ctx, reg, log, teardown)
	})
}

// connect returns clients of the database and of a broker that answers. disconnect
// closes both; it is nil with an error.
func (c *config) connect(ctx context.Context) (session *gocql.Session, client *kgo.Client, disconnect func(), err error) {
	if session, err = c.Scylla.session(c.Scylla.Keyspace); err != nil {
		return nil, nil, nil, err
	}
	if client, err = c.Kafka.client(); err == nil {
		err = reachable(ctx, client, c.Kafka.Seeds)
		if err == nil {
			return session, client, func() { client.Close(); sessions.Close(session) }, nil
		}
		client.Close()
	}
	sessions.Close(session)
	return nil, nil, nil, err
}
