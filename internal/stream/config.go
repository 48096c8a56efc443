package stream

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

// Defaults of Config.
const (
	DefaultBuffer           = 512
	DefaultMaxSubscriptions = 2000
	DefaultHeartbeat        = 15 * time.Second
	DefaultRefresh          = 5 * time.Second
	DefaultWriteTimeout     = 10 * time.Second
)

// MaxTopics is how many topics one subscription may have.
const MaxTopics = 20

// DefaultTopics returns the default of Config.Topics: the topics of orders, and that
// of the examples of messages.
func DefaultTopics() []string {
	return []string{"OrderCreated", "OrderUpdated", "OrderCancelled", "reminders"}
}

// Config is how a Hub behaves. Kafka needs the brokers; all else has defaults.
type Config struct {
	// Kafka are the client's options: brokers, TLS, SASL.
	Kafka []kgo.Opt
	// Topics are patterns of what may be watched; * stands for any characters.
	// Default: DefaultTopics. Those that begin with _ never.
	Topics []string
	// Buffer is how many events may wait for one watcher before it is dropped.
	// Default 512.
	Buffer int
	// MaxSubscriptions bounds the subscriptions, and the WebSockets; one caller has
	// half of each at most. Default 2,000.
	MaxSubscriptions int
	// Heartbeat is how often an idle watcher hears something. Default 15 s.
	Heartbeat time.Duration
	// Refresh is how often new partitions and topics are looked for. Default 5 s.
	Refresh time.Duration
	// WriteTimeout bounds one write to a watcher. Default 10 s.
	WriteTimeout time.Duration
	// Gate lets watchers in, by bearer token and the role viewer. Nil lets everybody in.
	Gate *access.Gate
	// Logger gets what the broker does not do, at Warn. Default discards.
	Logger *slog.Logger
	// Registerer gets the metrics. Default: they are kept nowhere.
	Registerer prometheus.Registerer
}

func (c Config) withDefaults() Config {
	if len(c.Topics) == 0 {
		c.Topics = DefaultTopics()
	}
	c.Buffer = cmp.Or(c.Buffer, DefaultBuffer)
	c.MaxSubscriptions = cmp.Or(c.MaxSubscriptions, DefaultMaxSubscriptions)
	c.Heartbeat = cmp.Or(c.Heartbeat, DefaultHeartbeat)
	c.Refresh = cmp.Or(c.Refresh, DefaultRefresh)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, DefaultWriteTimeout)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	for _, p := range c.Topics {
		if _, err := path.Match(p, "x"); err != nil || p == "" {
			errs = append(errs, fmt.Errorf("topics %q: is no pattern; write names, with * for any characters", p))
		}
	}
	if c.Buffer < 2 || c.MaxSubscriptions < 1 {
		errs = append(errs, fmt.Errorf("buffer %d and %d subscriptions: must be at least 2 and 1", c.Buffer, c.MaxSubscriptions))
	}
	if c.Heartbeat <= 0 || c.Refresh <= 0 || c.WriteTimeout <= 0 {
		errs = append(errs, fmt.Errorf("heartbeat %s, refresh %s, write timeout %s: must be positive", c.Heartbeat, c.Refresh, c.WriteTimeout))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("watch config: %w", err)
	}
	return nil
}

// allowed says whether a topic may be watched.
func (c *Config) allowed(topic string) bool {
	if strings.HasPrefix(topic, "_") {
		return false
	}
	for _, p := range c.Topics {
		if ok, _ := path.Match(p, topic); ok {
			return true
		}
	}
	return false
}
