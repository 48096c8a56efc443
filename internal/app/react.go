package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/notify"
	"github.com/scylla-outbox/scylla-outbox/react"
	"github.com/scylla-outbox/scylla-outbox/react/delivery"
)

// reactRulesKey is the key of the list of rules, which has no flag and no environment
// variable.
const reactRulesKey = "react.rules"

// LogTarget is the name of the target that writes events to the log. It always exists.
const LogTarget = "log"

// Deliveries opens the store of deliveries.
func (c *Config) Deliveries(session *gocql.Session) (*delivery.Store, error) {
	consistency, serial := c.Scylla.Consistencies()
	s, err := delivery.Open(delivery.Config{
		Session: session, Keyspace: c.Scylla.Keyspace, KeepFailed: c.React.KeepFailed, Consistency: consistency,
		Serial: serial, Timeout: cmp.Or(c.Scylla.Timeout, delivery.DefaultTimeout),
	})
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("react.keep_failed: %w", err))
	}
	return s, nil
}

// Reactor returns the reactor of the configured rules.
func (c *Config) Reactor(store *delivery.Store, reg prometheus.Registerer, log *slog.Logger) (*react.Reactor, error) {
	if len(c.React.Rules) == 0 {
		return nil, cli.WithHint(errors.New("no rules are configured"), "list them as %s in the configuration file; docs/reactions.md contains an example", reactRulesKey)
	}
	targets, err := notify.ParseTargets(c.React.Targets, c.React.WebhookSecrets)
	if err != nil {
		return nil, fmt.Errorf("react.targets: %w", err)
	}
	if _, taken := targets[LogTarget]; taken {
		return nil, fmt.Errorf("react.targets: %s is the name of the log; use another name", LogTarget)
	}
	targets[LogTarget] = toLog(log)
	opts, err := c.Kafka.Options()
	if err != nil {
		return nil, err
	}
	r, err := react.New(react.Config{
		Kafka: append(opts, kgo.SeedBrokers(c.Kafka.Seeds...)), Deliveries: store, Rules: c.React.Rules, Targets: targets, Group: c.React.Group,
		Logger: log, Registerer: reg,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", reactRulesKey, err)
	}
	return r, nil
}

// toLog returns the target that writes messages to the log.
func toLog(log *slog.Logger) notify.Target {
	return notify.TargetFunc(func(ctx context.Context, m notify.Message) error {
		level := slog.LevelInfo
		switch m.Severity {
		case notify.Warning:
			level = slog.LevelWarn
		case notify.Critical:
			level = slog.LevelError
		}
		log.Log(ctx, level, m.Title, "type", m.Type, "delivery", m.ID, "text", m.Text)
		return nil
	})
}
