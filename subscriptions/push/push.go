// Package push runs plugins: Go code that receives the messages of subscriptions, in a program
// beside 'outbox subscriptions'.
//
// It is a part of the program, and may change in any version.
package push

import (
	"context"
	"errors"
	"log/slog"
	"reflect"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/engine"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/plugin"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/store"
)

// Config configures Run. Session, Kafka and Plugins are required.
type Config struct {
	// Session is a session in the keyspace of the tables.
	Session *gocql.Session
	// Kafka are the client's options: brokers, TLS, SASL.
	Kafka []kgo.Opt
	// Plugins are the destinations by the name that Push.To of a subscription has.
	Plugins map[string]plugin.Plugin
	// Subscriptions are stored before the first delivery: created, or replaced if they differ.
	// One that is paused stays so.
	Subscriptions []subscriptions.Subscription
	// Logger receives failures. Default discards.
	Logger *slog.Logger
	// Registerer receives the metrics. Default: no metrics are registered.
	Registerer prometheus.Registerer
}

// Run delivers the messages of the subscriptions whose destination is one of the plugins, until
// ctx ends. It then waits for the calls in progress, and returns nil. Several processes may have
// the same plugins; they share the partitions.
//
// It returns an error if a required field is missing or a subscription cannot be stored.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Session == nil || len(cfg.Plugins) == 0 {
		return errors.New("push: Session and Plugins are required")
	}
	keyspace := cfg.Session.Query("").Keyspace()
	resources, err := store.Open(cfg.Session, keyspace)
	if err != nil {
		return err
	}
	deadLetters, err := dlq.Open(cfg.Session, keyspace)
	if err != nil {
		return err
	}
	e, err := engine.New(engine.Config{
		Kafka: cfg.Kafka, Store: resources, DeadLetters: deadLetters,
		Push: plugin.Destinations{Plugins: cfg.Plugins}, PluginsOnly: true, Logger: cfg.Logger, Registerer: cfg.Registerer,
	})
	if err != nil {
		return err
	}
	for _, s := range cfg.Subscriptions {
		if err := put(ctx, e, s); err != nil {
			return err
		}
	}
	return e.Run(ctx)
}

// put stores a subscription, unless it is stored: each start would change its version.
func put(ctx context.Context, e *engine.Engine, s subscriptions.Subscription) error {
	old, err := e.Get(ctx, s.Name)
	if err != nil && !errors.Is(err, subscriptions.ErrNotFound) {
		return err
	}
	same := s.WithDefaults()
	same.Paused, same.Version, same.CreatedAt, same.ChangedAt, same.ChangedBy = old.Paused, old.Version, old.CreatedAt, old.ChangedAt, old.ChangedBy
	if err == nil && reflect.DeepEqual(same, old) {
		return nil
	}
	s.KeepPaused = err == nil
	_, err = e.Put(ctx, s, self.Host())
	return err
}
