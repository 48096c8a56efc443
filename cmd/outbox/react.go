package main

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
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/daemon"
	"github.com/scylla-outbox/scylla-outbox/notify"
	"github.com/scylla-outbox/scylla-outbox/react"
	"github.com/scylla-outbox/scylla-outbox/react/delivery"
)

const sectionReact section = "react"

// reactConfig is how events are handed on.
type reactConfig struct {
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
	{sectionReact, "targets", []string{}, "targets of react.rules, name=URL each, as in notifications.targets; log always exists and writes events to the log", true},
	{sectionReact, "webhook_secrets", []string{}, "secrets that sign their webhooks, as in notifications.webhook_secrets", true},
	{sectionReact, "group", react.DefaultGroup, "prefix of the names of the rules' consumer groups; a dot and the rule's name follow", false},
	{sectionReact, "keep_delivered", delivery.DefaultKeepDelivered, "how long a delivered event is remembered: as long it can be repeated, and is not delivered twice", false},
	{sectionReact, "keep_failed", delivery.DefaultKeepFailed, "how long a failed delivery is kept", false},
	{sectionReact, "drain_timeout", react.DefaultDrainTimeout, "how long attempts in progress may take after SIGTERM", false},
}

// reactRulesKey is the key of the list of rules. Like the list of tables it has no
// flag and no environment variable.
const reactRulesKey = "react.rules"

// logTarget is the target that is always there.
const logTarget = "log"

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
			"concurrency, queue, order, from", reactRulesKey, err)
	}
	return out, nil
}

func newReactCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "react",
		Short: "Tell people and programs of events, by rules, until SIGTERM",
		Long: `Tell people and programs of events, by rules, until SIGTERM.

The rules stand in the configuration file, as react.rules: which topics and event
types, a CEL expression over the event, and the target that gets it: e-mail, Slack
and others by shoutrrr URL, a signed webhook, or the log. Each rule has a consumer
group, queue, attempts and time-out of its own. Several processes share the work.
'outbox deliveries' shows what became of the events. Metrics are at the admin
address.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			return runReact(cmd, c)
		},
	}
	addFlags(cmd, sectionScylla, sectionKafka, sectionReact, sectionAdmin, sectionLog)
	return cmd
}

// deliveries opens the store of deliveries.
func (c *config) deliveries(session *gocql.Session) (*delivery.Store, error) {
	consistency, serial, err := c.Scylla.consistencies()
	if err != nil {
		return nil, err
	}
	s, err := delivery.Open(delivery.Config{
		Session: session, Keyspace: c.Scylla.Keyspace, KeepDelivered: c.React.KeepDelivered, KeepFailed: c.React.KeepFailed, Consistency: consistency,
		Serial: serial, Timeout: cmp.Or(c.Scylla.Timeout, delivery.DefaultTimeout),
	})
	if err != nil {
		return nil, usageError{fmt.Errorf("react.keep_delivered and react.keep_failed: %w", err)}
	}
	return s, nil
}

// reactor makes the reactor of the configuration's rules.
func (c *config) reactor(store *delivery.Store, reg prometheus.Registerer, log *slog.Logger) (*react.Reactor, error) {
	if len(c.React.Rules) == 0 {
		return nil, withHint(errors.New("there are no rules"), "%s in the configuration file is their list; docs/reactions.md has an example", reactRulesKey)
	}
	targets, err := notify.ParseTargets(c.React.Targets, c.React.WebhookSecrets)
	if err != nil {
		return nil, fmt.Errorf("react.targets: %w", err)
	}
	if _, taken := targets[logTarget]; taken {
		return nil, fmt.Errorf("react.targets: %s is the name of the log; choose another", logTarget)
	}
	targets[logTarget] = toLog(log)
	opts, err := c.Kafka.options()
	if err != nil {
		return nil, err
	}
	r, err := react.New(react.Config{
		Kafka: append(opts, kgo.SeedBrokers(c.Kafka.Seeds...)), Deliveries: store, Rules: c.React.Rules, Targets: targets, Group: c.React.Group,
		DrainTimeout: c.React.DrainTimeout, Logger: log, Registerer: reg,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", reactRulesKey, err)
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

func runReact(cmd *cobra.Command, c *config) error {
	// What is wrong with the rules is said before anything is waited for.
	check := func(log *slog.Logger) error {
		_, err := c.reactor(nil, prometheus.NewRegistry(), log)
		return err
	}
	return withAdmin(cmd, c, check, func(ctx context.Context, session *gocql.Session, reg *prometheus.Registry, admin *adminServer, log *slog.Logger, teardown *daemon.Teardown) error {
		store, err := c.deliveries(session)
		if err != nil {
			return err
		}
		reactor, err := c.reactor(store, reg, log)
		if err != nil {
			return usageError{err}
		}
		admin.works(func() (bool, any) { return true, struct{}{} })
		log.Info("reacting to events", "rules", len(c.React.Rules), "targets", len(c.React.Targets), "admin", admin.url)
		return reactor.Run(ctx)
	})
}
