package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
	"github.com/scylla-outbox/scylla-outbox/notify"
	"github.com/scylla-outbox/scylla-outbox/react"
	"github.com/scylla-outbox/scylla-outbox/react/delivery"
)

const SectionReact Section = "react"

// ReactConfig is how events are handed on.
type ReactConfig struct {
	Targets        []string      `koanf:"targets"`
	WebhookSecrets []string      `koanf:"webhook_secrets"`
	Group          string        `koanf:"group"`
	KeepDelivered  time.Duration `koanf:"keep_delivered"`
	KeepFailed     time.Duration `koanf:"keep_failed"`
	DrainTimeout   time.Duration `koanf:"drain_timeout"`
	// Rules say which events; see reactRulesKey.
	Rules []react.Rule `koanf:"-"`
}

// reactSettings are in the table of settings.
var reactSettings = []setting{
	{SectionReact, "targets", []string{}, "targets of react.rules, name=URL each, as in notifications.targets; log always exists and writes events to the log", true},
	{SectionReact, "webhook_secrets", []string{}, "secrets that sign their webhooks, as in notifications.webhook_secrets", true},
	{SectionReact, "group", react.DefaultGroup, "prefix of the names of the rules' consumer groups; a dot and the rule's name follow", false},
	{SectionReact, "keep_delivered", delivery.DefaultKeepDelivered, "how long a delivered event is remembered: as long it can be repeated, and is not delivered twice", false},
	{SectionReact, "keep_failed", delivery.DefaultKeepFailed, "how long a failed delivery is kept", false},
	{SectionReact, "drain_timeout", react.DefaultDrainTimeout, "how long attempts in progress may take after SIGTERM", false},
}

// ReactRulesKey is the key of the list of rules. Like the list of tables it has no
// flag and no environment variable.
const ReactRulesKey = "react.rules"

// LogTarget is the target that is always there.
const LogTarget = "log"

// reactRulesFrom reads the list as the file has it.
func reactRulesFrom(list any) ([]react.Rule, error) {
	if list == nil {
		return nil, nil
	}
	var out []react.Rule
	d, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{
		Result: &out, TagName: "koanf", ErrorUnused: true, WeaklyTypedInput: true, DecodeHook: durationHook(),
	})
	if err == nil {
		err = d.Decode(list)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w: each rule has name, topics, types, when, to, title, text, severity, timeout, attempts, backoff, max_backoff, "+
			"concurrency, queue, order, from", ReactRulesKey, err)
	}
	return out, nil
}

// Deliveries opens the store of deliveries.
func (c *Config) Deliveries(session *gocql.Session) (*delivery.Store, error) {
	consistency, serial, err := c.Scylla.Consistencies()
	if err != nil {
		return nil, err
	}
	s, err := delivery.Open(delivery.Config{
		Session: session, Keyspace: c.Scylla.Keyspace, KeepDelivered: c.React.KeepDelivered, KeepFailed: c.React.KeepFailed, Consistency: consistency,
		Serial: serial, Timeout: cmp.Or(c.Scylla.Timeout, delivery.DefaultTimeout),
	})
	if err != nil {
		return nil, cli.Usage(fmt.Errorf("react.keep_delivered and react.keep_failed: %w", err))
	}
	return s, nil
}

// Reactor makes the reactor of the configuration's rules.
func (c *Config) Reactor(store *delivery.Store, reg prometheus.Registerer, log *slog.Logger) (*react.Reactor, error) {
	if len(c.React.Rules) == 0 {
		return nil, cli.WithHint(errors.New("there are no rules"), "%s in the configuration file is their list; docs/reactions.md has an example", ReactRulesKey)
	}
	targets, err := notify.ParseTargets(c.React.Targets, c.React.WebhookSecrets)
	if err != nil {
		return nil, fmt.Errorf("react.targets: %w", err)
	}
	if _, taken := targets[LogTarget]; taken {
		return nil, fmt.Errorf("react.targets: %s is the name of the log; choose another", LogTarget)
	}
	targets[LogTarget] = toLog(log)
	opts, err := c.Kafka.Options()
	if err != nil {
		return nil, err
	}
	r, err := react.New(react.Config{
		Kafka: append(opts, kgo.SeedBrokers(c.Kafka.Seeds...)), Deliveries: store, Rules: c.React.Rules, Targets: targets, Group: c.React.Group,
		DrainTimeout: c.React.DrainTimeout, Logger: log, Registerer: reg,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ReactRulesKey, err)
	}
	return r, nil
}

// toLog writes messages to the log.
func toLog(log *slog.Logger) notify.Target {
	return notify.TargetFunc(func(ctx context.Context, m notify.Message) error {
		level := slog.LevelInfo
		switch m.Severity {
		case notify.Warning:
			level = slog.LevelWarn
		case notify.Critical:
			level = slog.LevelError
		}
		log.Log(ctx, level, m.Title, "rule", m.Type, "delivery", m.ID, "text", m.Text)
		return nil
	})
}
