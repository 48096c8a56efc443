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

	// MaxShards bounds Config.Shards: each has metrics of its own.
	MaxShards = 256
	// MinSessionTimeout is the shortest; most brokers want 6 s at least.
	MinSessionTimeout = time.Second
	// MaxSessionTimeout is the longest, and that long nobody works on the shards of
	// an instance that was killed.
	MaxSessionTimeout = 5 * time.Minute
)

// Config configures a Member. Zero values mean the defaults.
type Config struct {
	// Brokers are the first addresses of the Kafka cluster, host:port. Required.
	Brokers []string
	// Kafka are further options of the Kafka client: TLS, SASL, a dialer. What the
	// lease rests on cannot be changed by them.
	Kafka []kgo.Opt
	// Name names the group, and with ".shards" behind it the control topic: letters,
	// digits, dots, underscores and hyphens. Instances of one name share. Required.
	Name string
	// Shards is the number of shards, 1 to MaxShards, and the same in all instances:
	// the broker lets none into the group that has another. With 1 one instance
	// works and the others stand by. Required.
	Shards int
	// Replication is the replication factor of the control topic if it has to be
	// made. Default -1, which leaves it to the broker.
	Replication int16

	// SessionTimeout is how long the broker hears nothing of an instance before it
	// gives its shards to others: what fail-over costs after a kill. Default
	// DefaultSessionTimeout; bounds MinSessionTimeout and MaxSessionTimeout, and the
	// broker has bounds of its own.
	SessionTimeout time.Duration
	// StopTimeout is how long a function takes at most to return once its context has
	// ended. Default DefaultStopTimeout.
	StopTimeout time.Duration
	// RebalanceTimeout is how long the broker waits for an instance that has to give
	// up shards before it takes them all. It must be longer than StopTimeout and a
	// fifth of SessionTimeout together, and at least half of SessionTimeout. Default
	// DefaultRebalanceTimeout.
	RebalanceTimeout time.Duration
	// RestartDelay is the wait before a function that failed repeatedly is started
	// again. Default DefaultRestartDelay.
	RestartDelay time.Duration

	// Fatal says of an error that a function returned whether it ends everything. Nil
	// means that none does.
	Fatal func(error) bool
	// Logger receives the log. Nil discards it.
	Logger *slog.Logger
	// Registerer receives the metrics. Nil keeps them private.
	Registerer prometheus.Registerer
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
	return c
}

// name is what both a group and a topic may be called, with room for ".shards".
var name = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,240}$`)

func (c *Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(c.Brokers) == 0 {
		bad("Brokers is empty")
	}
	if !name.MatchString(c.Name) {
		bad("Name %q must be of letters, digits, dots, underscores and hyphens, 240 at most, because a topic is called so", c.Name)
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
		bad("RebalanceTimeout %s must be longer than StopTimeout and a fifth of SessionTimeout together, %s: else the broker gives shards to another while they are being drained",
			c.RebalanceTimeout, least)
	}
	if least := c.SessionTimeout / 2; c.RebalanceTimeout < least {
		bad("RebalanceTimeout %s must be at least half of SessionTimeout, %s: a lease is no longer than it, and wants some heartbeats", c.RebalanceTimeout, least)
	}
	if c.RestartDelay < 0 {
		bad("RestartDelay %s must be positive", c.RestartDelay)
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("sharing: %w", errors.Join(errs...))
}

// topic is the control topic.
func (c *Config) topic() string { return ControlTopic(c.Name) }

// ControlTopic is the topic whose partitions are the shards of those that share under
// a name (Config.Name).
func ControlTopic(name string) string { return name + ".shards" }

// heartbeat is the time between two heartbeats.
func (c *Config) heartbeat() time.Duration { return c.SessionTimeout / 10 }

// margin is how long before the broker may give shards to another they are no
// longer worked on here. It covers clocks that do not run equally fast, and the
// time from the last look at the lease until what was allowed by it is written.
func (c *Config) margin() time.Duration { return c.SessionTimeout / 5 }

// patience is how long one request to the coordinator may take: some fit into what
// a lease lasts, so that a dead connection alone does not end it.
func (c *Config) patience() time.Duration { return c.SessionTimeout / 4 }
