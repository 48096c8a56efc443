package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/internal/guard"
	"github.com/scylla-outbox/scylla-outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/orders"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	relayhint "github.com/scylla-outbox/scylla-outbox/outbox/hint"
	"github.com/scylla-outbox/scylla-outbox/schema"
)

// Services are messages and orders: the services that the APIs for programs and that for
// operators share in a process.
type Services struct {
	orders   *orders.Service   // nil if it is not a part
	messages *messages.API     // nil if it is not a part
	hints    *relayhint.Sender // nil for none
	observer *observer
	// closeStore closes the store of payloads; nil before it is open.
	closeStore func() error
}

// Parts select services.
type Parts struct{ Messages, Orders bool }

// NewServices returns services on the session, once the database has the table of the outbox. The
// caller closes them. Until ctx ends it adapts GOGC to the live memory, unless the environment sets
// it.
func NewServices(ctx context.Context, c *Config, session *gocql.Session, parts Parts, reg prometheus.Registerer, log *slog.Logger) (_ *Services, err error) {
	ttl, err := outboxTTL(ctx, &c.Scylla, session, log)
	if err != nil {
		return nil, err
	}
	schemas, err := c.Kafka.SchemaRegistry()
	if err != nil {
		return nil, err
	}
	limiter, err := guard.NewLimiter(guard.LimiterConfig{Registerer: reg})
	if err != nil {
		return nil, err
	}
	if os.Getenv("GOGC") == "" {
		go permitGarbage(ctx)
	}
	s := &Services{observer: newObserver(c, session, log)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	var hints messages.Hints // nil without relays
	if len(c.Hints.RelayAddrs) > 0 {
		if s.hints, err = relayhint.NewSender(relayhint.SenderConfig{Addrs: c.Hints.RelayAddrs, Key: []byte(c.Hints.Key), Logger: log}); err != nil {
			return nil, cli.Usage(fmt.Errorf("hints.relay_addrs and hints.key: %w", err))
		}
		hints = s.hints
	}
	if parts.Orders {
		conf := orders.Config{Consistency: consistency, RowTTL: ttl, Schemas: schemas, Limiter: limiter, Hints: hints, Logger: log, Registerer: reg}
		if conf.Publication, err = c.Publication(); err != nil {
			return nil, err
		}
		if s.orders, err = orders.New(session, conf); err != nil {
			return nil, cli.Usage(err)
		}
	}
	if parts.Messages {
		conf := messages.Config{Consistency: consistency, Schemas: schemas, Limiter: limiter, Hints: hints, Logger: log, Registerer: reg}
		if s.messages, s.closeStore, err = newMessages(ctx, c, session, s.observer, conf); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// routes returns the operations of operators on messages and, if there are any, orders.
func (s *Services) routes() []func(huma.API) {
	all := []func(huma.API){s.messages.RegisterKept, s.messages.RegisterMany}
	if s.orders != nil {
		all = append([]func(huma.API){s.orders.Register}, all...)
	}
	return all
}

// Close ends the background tasks of the services.
func (s *Services) Close() error {
	if s == nil {
		return nil
	}
	err := s.observer.Close()
	if s.hints != nil {
		err = errors.Join(err, s.hints.Close())
	}
	if s.closeStore != nil {
		err = errors.Join(err, s.closeStore())
	}
	return err
}

// hasOrders reports that the keyspace has the tables of orders, which are an example. It waits for
// the migrations, which record the components before they make the table of the outbox.
func hasOrders(ctx context.Context, c *ScyllaConfig, session *gocql.Session, log *slog.Logger) (bool, error) {
	if _, err := outboxTTL(ctx, c, session, log); err != nil {
		return false, err
	}
	has, err := schema.ReadInstalled(ctx, session, c.Keyspace)
	return slices.Contains(has, schema.Orders), err
}

// outboxTTL returns how long the outbox keeps its rows, zero for ever. It retries while the
// database is unreachable, and while the migrations have not created the table yet: a process
// that starts during them must not end.
func outboxTTL(ctx context.Context, c *ScyllaConfig, session *gocql.Session, log *slog.Logger) (time.Duration, error) {
	var seconds int64
	err := c.untilUp(ctx, log, "failed to read the TTL of the outbox; retrying", func() error {
		err := session.Query("SELECT default_time_to_live FROM system_schema.tables WHERE keyspace_name = ? AND table_name = ?",
			c.Keyspace, outbox.DefaultTableName).WithContext(ctx).Scan(&seconds)
		if errors.Is(err, gocql.ErrNotFound) {
			err = cli.WithHint(fmt.Errorf("keyspace %s has no table %s", c.Keyspace, outbox.DefaultTableName), "outbox schema migrate creates it")
		}
		return err
	})
	return time.Duration(seconds) * time.Second, err
}

// Logger returns the configured logger on w. Errors are of usage.
func (c logConfig) Logger(w io.Writer) (*slog.Logger, error) {
	log, err := daemon.NewLogger(w, c.Level, c.Format)
	if err != nil {
		return nil, cli.Usage(err)
	}
	return log, nil
}
