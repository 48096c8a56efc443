package react

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/self"
	"github.com/scylla-outbox/scylla-outbox/notify"
	"github.com/scylla-outbox/scylla-outbox/react/delivery"
)

// Defaults of Config.
const (
	DefaultGroup        = "outbox-react"
	DefaultDrainTimeout = 10 * time.Second
	DefaultPoll         = time.Second
	DefaultReport       = 2 * time.Second
)

const (
	// MaxRules is the maximum number of rules of a Reactor: each is a client of
	// the broker.
	MaxRules = 100
	// maxWaitingBytes bounds the payloads that wait at one rule, in addition to
	// its Queue; a batch of takeAtOnce records may exceed it.
	maxWaitingBytes = 16 << 20
	// takeAtOnce is the number of records taken between two checks of the bounds.
	takeAtOnce = 16
	// fetchBytes bounds one fetch in its wire form, which may be compressed.
	fetchBytes = 4 << 20
	// sessionTimeout is the time after which the partitions of a failed process
	// are reassigned.
	sessionTimeout = 12 * time.Second
	// metadataAge is the time after which new topics and partitions are
	// discovered.
	metadataAge = 10 * time.Second
)

// Deliveries stores deliveries; *delivery.Store implements it.
type Deliveries interface {
	Read(ctx context.Context, id gocql.UUID) (*delivery.Delivery, error)
	Save(ctx context.Context, d *delivery.Delivery) error
	Repeats(ctx context.Context, rule string, after gocql.UUID, limit int) ([]delivery.Asked, error)
	Repeated(ctx context.Context, d *delivery.Delivery) error
	Since(ctx context.Context, rule string, first time.Time) (time.Time, error)
	Report(ctx context.Context, all []delivery.Report) error
}

// Config of a Reactor. Kafka, Deliveries and Rules are required.
type Config struct {
	// Kafka are the client's options: brokers, TLS, SASL.
	Kafka []kgo.Opt
	// Deliveries stores the results of deliveries.
	Deliveries Deliveries
	// Rules, at most MaxRules. Their names are unique in a keyspace: two reactors with
	// a rule of one name share its events.
	Rules []Rule
	// Targets and Plugins are the destinations of rules, by name.
	Targets map[string]notify.Target
	Plugins map[string]Plugin
	// Group is the prefix of the consumer groups; the name of the rule follows
	// after a dot. Default outbox-react.
	Group string
	// DrainTimeout bounds attempts in flight when the reactor stops or loses a
	// partition. Default 10 s.
	DrainTimeout time.Duration
	// Poll is the interval of checks for requested repeats. Default 1 s.
	Poll time.Duration
	// Report is the interval at which the progress of each rule is written to the
	// database. Default 2 s.
	Report time.Duration
	// Instance names this process there. Default: its host and process number.
	Instance string
	// Logger receives failures. Default discards.
	Logger *slog.Logger
	// Registerer receives the metrics. Default: no metrics are registered.
	Registerer prometheus.Registerer
}

func (c Config) withDefaults() Config {
	c.Group = cmp.Or(c.Group, DefaultGroup)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, DefaultDrainTimeout)
	c.Poll = cmp.Or(c.Poll, DefaultPoll)
	c.Report = cmp.Or(c.Report, DefaultReport)
	c.Instance = cmp.Or(c.Instance, self.Process())
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	return c
}

// compile checks everything and returns the rules. Every problem is reported.
func (c *Config) compile() ([]*compiled, error) {
	var errs []error
	if c.Deliveries == nil {
		errs = append(errs, errors.New("deliveries: may not be missing"))
	}
	if c.DrainTimeout < 0 || c.Poll <= 0 || c.Report <= 0 {
		errs = append(errs, fmt.Errorf("drain timeout %s, poll %s, report %s: must be positive", c.DrainTimeout, c.Poll, c.Report))
	}
	if len(c.Rules) == 0 || len(c.Rules) > MaxRules {
		errs = append(errs, fmt.Errorf("%d rules: there must be 1 to %d", len(c.Rules), MaxRules))
	}
	for name := range c.Plugins {
		if _, twice := c.Targets[name]; twice {
			errs = append(errs, fmt.Errorf("plugin %s: a target has that name too", name))
		}
	}
	var out []*compiled
	seen := make(map[string]bool)
	for _, r := range c.Rules {
		if seen[r.Name] {
			errs = append(errs, fmt.Errorf("rule %s: the name is taken", r.Name))
		}
		seen[r.Name] = true
		one, err := c.compileRule(r)
		errs = append(errs, err)
		out = append(out, one)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("react: %w", err)
	}
	return out, nil
}

// names returns the possible destinations of rules.
func (c *Config) names() []string {
	out := append(slices.Collect(maps.Keys(c.Targets)), slices.Collect(maps.Keys(c.Plugins))...)
	slices.Sort(out)
	if len(out) == 0 {
		return []string{"none"}
	}
	return out
}
