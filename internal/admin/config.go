package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/archive"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/clocks"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/internal/stream"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// Defaults of Config.
const (
	DefaultTimeout      = 5 * time.Second
	DefaultLiveInterval = time.Second
	DefaultMaxListeners = 64
	DefaultDrainTimeout = 10 * time.Second
)

// Config configures a Server.
type Config struct {
	// Session reads and writes the keyspace's tables, with its own consistency. Required, as are
	// Keyspace, DeadLetters and Gate.
	Session  *gocql.Session
	Keyspace string
	// DeadLetters is the store of the same keyspace.
	DeadLetters *dlq.Store
	// Gate authenticates requests.
	Gate *access.Gate
	// Proxies are the trusted reverse proxies whose forwarded headers are used as the
	// client address, for limits on failed authentication, the audit trail and the log.
	// Default: none.
	Proxies access.Proxies
	// Timeout bounds one statement. Default 5 s.
	Timeout time.Duration

	// Kafka connects to the topics, for their records and the biography of an event. Without
	// it, records are unavailable and biographies do not read the topics.
	Kafka Kafka
	// Topics are the topics whose records can be read. Default: stream.DefaultTopics.
	Topics stream.Topics
	// Registry decodes payloads in the wire format of a schema registry, of records and of
	// dead letters, and checks edited ones. Default: none.
	Registry *registry.Registry
	// Relay is the name of the relay that publishes to these topics, and Tables are its
	// outbox tables, which are searched for an event's row. Default: outbox_messages in
	// Keyspace.
	Relay  string
	Tables []Table

	// Subscriptions returns the subscriptions, and the state of an event in them. Nil has none.
	Subscriptions Subscriptions

	// Redeliverer previews redeliveries to subscriptions, which jobs make. Nil refuses them.
	Redeliverer Redeliverer

	// Scheduled returns the messages that wait for their time and whose id or key is of, at most limit; more
	// reports that there may be others. Nil has none.
	Scheduled func(ctx context.Context, of string, limit int) (found []ScheduledMessage, more bool, err error)

	// Written returns the events in the CDC log of a table, keyspace.table, that were written since a time, at
	// most limit. Nil has none.
	Written func(ctx context.Context, table string, since time.Time, limit int) ([]WrittenEvent, error)

	// Unread counts the events in the CDC log of a table, at most limit, that were written since
	// the last heartbeat of the process that read it. Nil counts none.
	Unread func(ctx context.Context, of UnreadOf, limit int) (int, error)
	// Verification returns the state of the continuous verification, by table. Nil has none.
	Verification func(ctx context.Context) ([]VerificationState, error)

	// Resharder changes the number of shards of Relay. Nil refuses it.
	Resharder Resharder

	// JobWaits is called after a job was created or resumed. Nil waits for the runner's next poll.
	JobWaits func()

	// Archive is the archive of purge, restore and sweep. Nil refuses jobs that need one.
	Archive *archive.Sweeper

	// Schemas validate edited payloads. Nil has none.
	Schemas *dlq.Schemas
	// Routes register operations of other packages; each is called once with the API. An
	// operation needs the role that access.Needs gives it, by default viewer for GET and
	// operator otherwise. Operations other than GET are audited by operation id and the
	// id in the path.
	Routes []func(huma.API)
	// Console is served below /console/. Nil serves none.
	Console http.Handler
	// StatusPatience bounds the wait of a status for each of its parts. Default 5 s.
	StatusPatience time.Duration
	// LiveInterval is the interval at which the database is polled for changes while
	// there are listeners. Default 1 s.
	LiveInterval time.Duration
	// MaxListeners bounds the number of concurrent listeners. Default 64.
	MaxListeners int
	// DrainDelay is how long a stopping server accepts requests while /readyz already
	// returns 503, so that load balancers can react. Default 0: new requests are refused
	// immediately.
	DrainDelay time.Duration
	// DrainTimeout bounds the requests that still run after DrainDelay. Default 10 s.
	DrainTimeout time.Duration

	// Nodes are the nodes of the database, for /readyz. May be nil.
	Nodes Nodes

	// Tracer makes the spans of requests. Nil makes none.
	Tracer oteltrace.TracerProvider
	// Registerer registers the metrics. Default: a private registry.
	Registerer prometheus.Registerer
	// Logger logs each requested change at Info. Default discards.
	Logger *slog.Logger
	// Clock dates the audit trail. Default the clock of the host.
	Clock clocks.Clock
}

// Nodes are the nodes of a database.
type Nodes interface {
	// Down returns the unreachable nodes, sorted.
	Down() []string
}

// Subscriptions are the subscriptions and their states, which are asked of the processes that
// run them.
type Subscriptions interface {
	// Of returns the state of the message of a record in each subscription of its topic. An
	// error means that it is not known.
	Of(ctx context.Context, r *kgo.Record) ([]subscriptions.Progress, error)
	List(ctx context.Context) ([]subscriptions.Subscription, error)
	Status(ctx context.Context, name string) (subscriptions.Status, error)
}

// UnreadOf is a part of an outbox table that no process reads: shard Shard of Shards, or all of it if
// Shards is 0. Since is the time up to which it was read; zero if that is not known.
type UnreadOf struct {
	Table         string
	Shard, Shards int
	Since         time.Time
}

// Table is an outbox table.
type Table struct {
	Keyspace, Name string
	// Mapping maps its columns. The zero value is that of outbox_messages.
	Mapping outbox.Mapping
}

// String returns the table's name with its keyspace.
func (t Table) String() string { return t.Keyspace + "." + t.Name }

func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.LiveInterval = cmp.Or(c.LiveInterval, DefaultLiveInterval)
	c.MaxListeners = cmp.Or(c.MaxListeners, DefaultMaxListeners)
	c.DrainTimeout = cmp.Or(c.DrainTimeout, DefaultDrainTimeout)
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.JobWaits == nil {
		c.JobWaits = func() {}
	}
	c.Clock = clocks.Or(c.Clock)
	if len(c.Tables) == 0 {
		c.Tables = []Table{{Keyspace: c.Keyspace, Name: outbox.DefaultTableName}}
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Session == nil || c.DeadLetters == nil || c.Keyspace == "" {
		errs = append(errs, errors.New("session, keyspace and dead letters are required"))
	}
	if c.Gate == nil {
		errs = append(errs, errors.New("gate is required; without it the API would be open to everyone"))
	}
	if c.DrainDelay < 0 {
		errs = append(errs, fmt.Errorf("drain delay %s: must not be negative; 0 disables it", c.DrainDelay))
	}
	if c.Timeout < 0 || c.LiveInterval < 0 || c.DrainTimeout < 0 || c.MaxListeners < 0 {
		errs = append(errs, errors.New("timeout, live interval, drain timeout and listeners: must not be negative"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("admin API: %w", err)
	}
	return nil
}
