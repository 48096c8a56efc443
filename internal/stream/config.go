package stream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
)

// Defaults of Config.
const (
	DefaultBuffer           = 512
	DefaultMaxSubscriptions = 2000
	DefaultHeartbeat        = 15 * time.Second
	DefaultRefresh          = 5 * time.Second
	DefaultWriteTimeout     = 10 * time.Second
)

// MaxTopics is the maximum number of topics of a subscription.
const MaxTopics = 20

// Schemas decodes the payload of an event into its Data. It waits for a schema until ctx ends.
// The event does not change if the payload cannot be decoded. *registry.Registry implements it.
type Schemas interface {
	Decode(ctx context.Context, e *kafkarecord.Event) error
}

// Config configures a Hub. Kafka needs the brokers; all other members have defaults.
type Config struct {
	// Kafka are the client's options: brokers, TLS, SASL.
	Kafka []kgo.Opt
	// Topics are the topics that clients may read. Default: DefaultTopics.
	Topics Topics
	// Buffer is the number of events that may wait for one subscription before it is
	// ended. Default 512.
	Buffer int
	// MaxSubscriptions bounds the subscriptions and the WebSockets, and the ones of one
	// caller at half of it. Default 2,000.
	MaxSubscriptions int
	// Heartbeat is the interval of heartbeats on an idle connection. Default 15 s.
	Heartbeat time.Duration
	// Refresh is the interval at which new partitions and topics are searched. Default 5
	// s.
	Refresh time.Duration
	// WriteTimeout bounds one write to a client. Default 10 s.
	WriteTimeout time.Duration
	// Schemas decodes payloads in the wire format of a schema registry. Default: none.
	Schemas Schemas
	// Gate authenticates clients, which need the role viewer. Nil allows everyone.
	Gate *access.Gate
	// Logger logs errors of the broker at Warn. Default discards.
	Logger *slog.Logger
	// Tracer makes the spans of the events that are sent to clients, each linked to the
	// span in the event's traceparent. Nil makes none.
	Tracer oteltrace.TracerProvider
	// Registerer registers the metrics. Default: a private registry.
	Registerer prometheus.Registerer
}

func (c Config) withDefaults() Config {
	c.Topics = c.Topics.OrDefault()
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
	for _, p := range c.Topics.Patterns {
		if _, err := path.Match(p, "x"); err != nil || p == "" {
			errs = append(errs, fmt.Errorf("topics %q: invalid pattern; use topic names, with * for any characters", p))
		}
	}
	if c.Buffer < 2 || c.MaxSubscriptions < 1 {
		errs = append(errs, fmt.Errorf("buffer %d and %d subscriptions: must be at least 2 and 1", c.Buffer, c.MaxSubscriptions))
	}
	if c.Heartbeat <= 0 || c.Refresh <= 0 || c.WriteTimeout <= 0 {
		errs = append(errs, fmt.Errorf("heartbeat %s, refresh %s, write timeout %s: must be positive", c.Heartbeat, c.Refresh, c.WriteTimeout))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("event stream config: %w", err)
	}
	return nil
}
