package share

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Defaults and bounds of Config.
const (
	DefaultReplication      = -1
	DefaultSessionTimeout   = 10 * time.Second
	DefaultStopTimeout      = 30 * time.Second
	DefaultRebalanceTimeout = time.Minute
	DefaultRestartDelay     = 5 * time.Second

	// MaxShards bounds Config.Shards: each shard has its own metrics.
	MaxShards = 256
	// MinSessionTimeout is the shortest session timeout; most brokers require at least 6
	// s.
	MinSessionTimeout = time.Second
	// MaxSessionTimeout is the longest session timeout. The shards of a killed instance
	// have no owner for that long.
	MaxSessionTimeout = 5 * time.Minute
)

// Config configures a Member. Zero values mean the defaults.
type Config struct {
	// Brokers contains bootstrap addresses of the Kafka cluster, host:port. Required.
	Brokers []string
	// Kafka contains further options of the Kafka client: TLS, SASL, a dialer. They
	// cannot override the options that the lease depends on.
	Kafka []kgo.Opt
	// Name is the name of the group and, with the suffix ".shards", of the control topic:
	// letters, digits, dots, underscores and hyphens. Instances with the same name share
	// the shards. Required.
	Name string
	// Shards is the number of shards, 1 to MaxShards. All instances use the same number:
	// the broker rejects members with another one. With 1, one instance works and the
	// others are standbys. Required.
	Shards int
	// Replication is the replication factor of the control topic when it is created.
	// Default -1, the broker's default.
	Replication int16

	// SessionTimeout is the time without heartbeats after which the broker assigns the
	// shards of an instance to others: the duration of a fail-over after a kill. Default
	// DefaultSessionTimeout; bounds MinSessionTimeout and MaxSessionTimeout, and the bounds
	// of the broker.
	SessionTimeout time.Duration
	// StopTimeout is the maximum time from the end of a function's context to its return.
	// Default DefaultStopTimeout.
	StopTimeout time.Duration
	// RebalanceTimeout is the time after which the broker takes all shards from an
	// instance that has not released the revoked ones. It must exceed the sum of
	// StopTimeout and a fifth of SessionTimeout, and be at least half of SessionTimeout.
	// Default DefaultRebalanceTimeout.
	RebalanceTimeout time.Duration
	// RestartDelay is the delay before a function that failed repeatedly is restarted.
	// Default DefaultRestartDelay.
	RestartDelay time.Duration

	// Fatal reports whether an error of a function stops the member. Nil means that no
	// error does.
	Fatal func(error) bool
	// Logger receives the log. Nil discards it.
	Logger *slog.Logger
	// Registerer receives the metrics. Nil keeps them private.
	Registerer prometheus.Registerer

	// process is this process, zero where it cannot be identified; ended reports that another
	// one of its host has ended. Tests set them.
	process process
	ended   func(process) bool
}

func (c Config) withDefaults() Config {
	c.Replication = cmp.Or(c.Replication, DefaultReplication)
	c.SessionTimeout = cmp.Or(c.SessionTimeout, DefaultSessionTimeout)
	c.StopTimeout = cmp.Or(c.StopTimeout, DefaultStopTimeout)
	c.RebalanceTimeout = cmp.Or(c.RebalanceTimeout, DefaultRebalanceTimeout)
	c.RestartDelay = cmp.Or(c.RestartDelay, DefaultRestartDelay)
	if c.Fatal == nil {
		c.Fatal = func(error) bool { return false }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	if c.ended == nil {
		c.process, _ = thisProcess()
		c.ended = process.hasEnded
	}
	return c
}

// name matches valid names of groups and topics, with room for ".shards".
var name = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,240}$`)

func (c *Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(c.Brokers) == 0 {
		bad("Brokers is empty")
	}
	if !name.MatchString(c.Name) {
		bad("Name %q must consist of at most 240 letters, digits, dots, underscores and hyphens, because it is part of a topic name", c.Name)
	}
	if c.Shards < 1 || c.Shards > MaxShards {
		bad("Shards %d is not between 1 and %d", c.Shards, MaxShards)
	}
	if c.Replication < -1 {
		bad("Replication %d must be positive, or -1", c.Replication)
	}
	if c.SessionTimeout < MinSessionTimeout || c.SessionTimeout > MaxSessionTimeout {
		bad("SessionTimeout %s is not between %s and %s", c.SessionTimeout, MinSessionTimeout, MaxSessionTimeout)
	}
	if c.StopTimeout < 0 {
		bad("StopTimeout %s must be positive", c.StopTimeout)
	}
	if least := c.StopTimeout + c.margin(); c.RebalanceTimeout <= least {
		bad("RebalanceTimeout %s must be longer than StopTimeout plus a fifth of SessionTimeout, %s: otherwise the broker reassigns shards before they are drained",
			c.RebalanceTimeout, least)
	}
	if least := c.SessionTimeout / 2; c.RebalanceTimeout < least {
		bad("RebalanceTimeout %s must be at least half of SessionTimeout, %s: it limits the lease, which spans several heartbeats", c.RebalanceTimeout, least)
	}
	if c.RestartDelay < 0 {
		bad("RestartDelay %s must be positive", c.RestartDelay)
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("sharing: %w", errors.Join(errs...))
}

// topic returns the name of the control topic.
func (c *Config) topic() string { return ControlTopic(c.Name) }

// ControlTopic returns the name of the topic whose partitions are the shards of the
// instances with the given name (Config.Name).
func ControlTopic(name string) string { return name + ".shards" }

// heartbeat returns the interval between two heartbeats.
func (c *Config) heartbeat() time.Duration { return c.SessionTimeout / 10 }

// margin returns the time before the broker may reassign shards at which this member
// stops working on them. It covers clocks that run at different speeds, and the time from
// a check of the lease to the end of the write that it allowed.
func (c *Config) margin() time.Duration { return c.SessionTimeout / 5 }

// patience returns the timeout of a request to the coordinator: several requests fit into
// a lease, so a dead connection alone does not end it.
func (c *Config) patience() time.Duration { return c.SessionTimeout / 4 }
