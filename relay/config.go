package relay

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/trace"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/cgroup"
	"github.com/scylla-outbox/scylla-outbox/internal/dbclock"
	"github.com/scylla-outbox/scylla-outbox/internal/settings"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/hint"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/backfill"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/capture"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/readback"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/topics"
)

// DebeziumTopicTemplate is the default of TopicTemplate for a table with the preset debezium.
const DebeziumTopicTemplate = "outbox.event.${aggregate_type}"

// Values of settings.
const (
	TailOn          = capture.TailOn
	TailOff         = capture.TailOff
	BackfillAuto    = backfill.Auto
	BackfillOff     = backfill.Off
	DeadLettersOn   = "on"
	DeadLettersOff  = "off"
	WhenOpenSpill   = publish.WhenOpenSpill
	WhenOpenHold    = publish.WhenOpenHold
	OrderingStrict  = publish.OrderingStrict
	OrderingRelaxed = publish.OrderingRelaxed
)

// The settings of the parts. A field of one of them with its tags, see package settings, is the only
// place of a setting: its key, default, bounds and documentation.
type (
	CaptureSettings  = capture.Settings
	PublishSettings  = publish.Settings
	ReadBackSettings = readback.Settings
	BackfillSettings = backfill.Settings
)

// Settings are the fields of Config that have defaults: a zero value means the default.
type Settings struct {
	// Name: relays with different names have separate checkpoints.
	Name  string `setting:"name" default:"outbox" usage:"name of the relay; each name has checkpoints of its own"`
	Table string `setting:"table" default:"outbox_messages" usage:"outbox table"`
	PublishSettings
	CaptureSettings
	ReadBackSettings
	BackfillSettings

	// MaxStreamBacklog is how many changes of a stream the relay reads after one that is
	// not acknowledged. It limits the events repeated after a crash if the relay may not
	// read the topics back.
	MaxStreamBacklog int `default:"10000" min:"1"`
	// MaxAggregates is the number of idle aggregates whose last sequence numbers a
	// Process keeps in memory, about 80 bytes each. For others the relay looks up the earlier
	// events when the next event arrives.
	MaxAggregates int `default:"500000" min:"1"`
	// DedupMemory limits the memory, in bytes, that a Process has for the ids of published
	// events, which prevent that an event is published twice. An event needs dedup.BytesPerEvent, 36
	// bytes, from its publication until the sweep reader has read its row, after the
	// confidence window. At the limit the tail reader waits for the sweep reader; at
	// 80 % of it Status reports a problem, so 45 bytes times events per second times
	// seconds of the confidence window are enough. The default is enough for 24,855 events per
	// second over two minutes.
	DedupMemory int64 `setting:"dedup_memory_bytes" default:"134217728" min:"1" usage:"bytes of an instance for the ids of published events, 36 for each that the sweep reader has not read yet; at the limit the tail reader waits; 45 × events per second × confidence window in seconds"`
	// DeadLetters is DeadLettersOn or DeadLettersOff. With on, events that cannot be
	// published are written to the table dead_letter_queue of Keyspace. With off, the
	// aggregate of such an event is held and retried every HoldRetry.
	DeadLetters string `default:"on" oneof:"on off"`
	// Rules have precedence over dlq.DefaultStrategyRules.
	Rules []dlq.StrategyRule `setting:"rules" usage:"strategies of dead letters; docs/operators/dead-letters.md"`
	// RestartDelay is the delay before the reader is restarted after repeated failures.
	RestartDelay time.Duration `default:"5s" min:"1ns"`
	// CheckpointInterval is how often checkpoints that advanced past events are saved.
	CheckpointInterval time.Duration `default:"1s" min:"1ns"`
	// DrainTimeout is how long a stopping relay waits for acknowledgements.
	DrainTimeout time.Duration `default:"20s" min:"1ns"`
	// StallAfter is how long the relay may make no progress before it reports that it is
	// not ready.
	StallAfter time.Duration `default:"30s" min:"1ns"`
}

// Defaults returns the defaults of all settings. Its lists must not be changed.
func Defaults() Settings { return defaults() }

var defaults = sync.OnceValue(func() (s Settings) {
	settings.SetDefaults(&s)
	return s
})

// Config configures a Relay. New reports every invalid field in one error.
type Config struct {
	Settings

	// Session is the database session; the relay does not close it. Required.
	Session *gocql.Session
	// Brokers are the seed brokers of the Kafka cluster, host:port. Required.
	Brokers []string
	// Kafka are further options of the Kafka client: TLS, SASL, a dialer, hooks. They
	// cannot change the options that the relay's guarantees depend on (acks,
	// idempotence, partitioning, limits).
	Kafka []kgo.Opt

	// Shard makes the relay process one of several equal parts of the table.
	// Checkpoints, logs (key shard) and metrics (label shard; unregistered when Run
	// returns) contain the shard. The following limits apply to the whole relay, and
	// each shard has an equal share: MaxInFlightRecords, MaxInFlightBytes, SpillLimit,
	// ReplayConcurrency, ReplayRate, BackfillRowsPerSecond. MaxAggregates, DedupMemory and
	// TailMaxQueriesPerSecond apply to the Process; without one they are divided too. The
	// zero value processes the whole table.
	Shard Shard
	// Fence, if not nil, prevents writes once another relay may own the data of this
	// one. The relay checks it before it publishes an event or writes a dead letter, and
	// before each write to a connection. After its first error Run discards the events in
	// progress and saves no checkpoint. The component that fences the relay also ends
	// Run's context. A share.Hold is a Fence.
	Fence Fence
	// Process, if not nil, is that of all shards of this table which run in one process:
	// it divides limits among them and reads the topics back once for shards which start
	// together. Default nil: a shard depends on no other one.
	Process *Process
	// Keyspace holds relay_checkpoints and relay_topics, and the outbox table
	// unless TableKeyspace names another. Required.
	Keyspace string
	// TableKeyspace is the outbox table's keyspace. Default Keyspace.
	TableKeyspace string
	// Mapping maps the columns of the table to event fields. The zero value is for the
	// columns of outbox_messages. If the table does not match, Run returns an
	// *outbox.MappingError.
	Mapping outbox.Mapping
	// Hints is the connection that receives the hints of writers, nil for none; the tail
	// reader reads the named streams immediately. The relay does not close it. See
	// package hint.
	Hints net.PacketConn
	// HintKey is shared with the writers, at least hint.MinKey bytes. Required with Hints.
	HintKey []byte

	// BackfillFrom, if not zero, requests a scan for all events written since then that
	// are not in their topics. One value requests one scan, however often the relay
	// starts with it; it is truncated to milliseconds. A relay that begins with a table that
	// relays of other names or keyspaces have begun to publish needs it, and begins there:
	// see AnotherRelayError.
	BackfillFrom time.Time
	// LoadMeter measures the load of the container. Nil reads the control groups of
	// Linux.
	LoadMeter LoadMeter
	// AwaitTable makes the relay wait at its start for a table that does not exist or does not
	// match the mapping, instead of ending: relays of other tables run in the same process.
	// A table that has matched once is awaited without it. Status reports it.
	AwaitTable bool

	deadLetters *dlq.Store         // nil without dead letters; set by New
	placed      *placement         // see place
	clock       *dbclock.Clock     // the database's; nil is that of the host
	rules       *dlq.StrategyRules // of Rules; nil if they are invalid; rulesErr contains the error
	rulesErr    error

	// Logger receives the relay's log. Nil discards it.
	Logger *slog.Logger
	// Registerer receives the relay's metrics. Nil keeps them private.
	Registerer prometheus.Registerer
	// Tracer makes the spans of publications, each linked to the span in the event's
	// traceparent. Nil makes none.
	Tracer trace.TracerProvider
}

func (c Config) withDefaults() Config {
	if c.Mapping.Preset == outbox.PresetDebezium {
		c.TopicTemplate = cmp.Or(c.TopicTemplate, DebeziumTopicTemplate)
	}
	settings.SetDefaults(&c.Settings)
	c.TableKeyspace = cmp.Or(c.TableKeyspace, c.Keyspace)
	c.rules, c.rulesErr = dlq.NewStrategyRules(c.Rules)
	if c.LoadMeter == nil {
		c.LoadMeter = cgroup.New("/")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	return c
}

// identifier matches the names that are valid in the queries of the CDC library, which
// does not quote.
var identifier = regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`)

// FieldError is an invalid value of a field of Config.
type FieldError struct {
	Field string // name of the field in Config
	Err   error  // the value and the allowed values
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

// Validate returns the error that New would return. It does not require a session. The
// error joins a *FieldError for each problem.
func (c Config) Validate() error {
	c = c.withDefaults()
	c.Session = new(gocql.Session)
	return c.validate()
}

func (c Config) validate() error {
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, &FieldError{field, fmt.Errorf(format, args...)})
	}
	if c.Session == nil {
		bad("Session", "missing")
	}
	if len(c.Brokers) == 0 {
		bad("Brokers", "empty: set at least one broker")
	}
	if err := c.Shard.Validate(); err != nil {
		bad("Shard", "%w", err)
	}
	if !identifier.MatchString(c.Keyspace) {
		bad("Keyspace", "%q is not an unquoted CQL name", c.Keyspace)
	}
	if !identifier.MatchString(c.Table) {
		bad("Table", "%q is not an unquoted CQL name: use lower-case letters, digits and _; the CDC library does not quote names", c.Table)
	}
	if !identifier.MatchString(c.TableKeyspace) {
		bad("TableKeyspace", "%q is not an unquoted CQL name: use lower-case letters, digits and _; the CDC library does not quote names", c.TableKeyspace)
	}
	if err := c.Mapping.Validate(); err != nil {
		bad("Mapping", "%w", err)
	}
	for _, t := range slices.Sorted(maps.Keys(c.Topics)) {
		if !dlq.ValidTopic(c.Topics[t]) {
			bad("Topics", "%q (for %s) is not a valid topic name", c.Topics[t], t)
		}
	}
	if !dlq.ValidTopic(topics.Expand(c.TopicTemplate, "x", "x")) {
		bad("TopicTemplate", "%q is not a valid topic name: besides ${event_type} and ${aggregate_type} use letters, digits, '.', '_' and '-'", c.TopicTemplate)
	}
	settings.Check(&c.Settings, func(field string, err error) { bad(field, "%w", err) })
	if c.Hints != nil && len(c.HintKey) < hint.MinKey {
		bad("HintKey", "%d bytes, fewer than %d", len(c.HintKey), hint.MinKey)
	}
	if c.TailMaxInterval < c.TailMinInterval {
		bad("TailMaxInterval", "%s is below the minimum interval, %s", c.TailMaxInterval, c.TailMinInterval)
	}
	if c.TailReorder > c.TailOverlap {
		bad("TailReorder", "%s is above the overlap, %s", c.TailReorder, c.TailOverlap)
	}
	if c.RetryMax < c.RetryMin {
		bad("RetryMax", "%s is below the minimum, %s", c.RetryMax, c.RetryMin)
	}
	if len(c.RetryDelays) > 100 {
		bad("RetryDelays", "%d entries, more than 100", len(c.RetryDelays))
	}
	if c.rulesErr != nil {
		bad("Rules", "%v", c.rulesErr)
	}
	for _, t := range slices.Sorted(maps.Keys(c.Orderings)) {
		if o := c.Orderings[t]; o != OrderingStrict && o != OrderingRelaxed {
			bad("Orderings", "%s: %q must be %s or %s", t, o, OrderingStrict, OrderingRelaxed)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("relay configuration: %w", errors.Join(errs...))
}

// publish returns the configuration of the publisher.
func (c *Config) publish() *publish.Config {
	return &publish.Config{
		Settings: c.PublishSettings, ShardName: c.shardName(), Table: c.Table, TableKeyspace: c.TableKeyspace,
		Brokers: c.Brokers, Kafka: c.Kafka, Fence: c.Fence, IDHeaders: rows.IDHeaders(c.Mapping),
		Tail: c.Tail == TailOn, ConfidenceWindow: c.ConfidenceWindow, ReadBackMargin: c.ReadBackMargin, Share: c.place().share,
		DeadLetters: c.deadLetters, Clock: c.clock, Rules: c.rules, LoadMeter: c.LoadMeter, Logger: c.Logger, Tracer: c.Tracer,
	}
}

// capture returns the configuration of the tail reader and the sweep reader.
func (c *Config) capture() *capture.Config {
	return &capture.Config{
		Settings: c.CaptureSettings, Session: c.Session, TableKeyspace: c.TableKeyspace, Table: c.Table,
		TailLimiter: c.place().tail, Turns: c.place().turns, MaxInFlightRecords: c.MaxInFlightRecords, MaxInFlightBytes: c.MaxInFlightBytes,
		RetryMin: c.RetryMin, Logger: c.Logger, Clock: c.clock,
	}
}

// readback returns the configuration of read-back and proofs.
func (c *Config) readback() *readback.Config {
	return &readback.Config{
		Settings: c.ReadBackSettings, Source: c.Source, Table: c.TableKeyspace + "." + c.Table, MaxRecordBytes: c.MaxRecordBytes,
		Topics: c.Topics, FirstAge: c.FirstAge, MaxInFlightRecords: c.MaxInFlightRecords, Share: c.place().share,
		RetryMin: c.RetryMin, RetryMax: c.RetryMax, Logger: c.Logger, Clock: c.clock,
	}
}

// backfill returns the configuration of scans and repairs.
func (c *Config) backfill() *backfill.Config {
	return &backfill.Config{
		Settings: c.BackfillSettings, Session: c.Session, Name: c.Name, ShardName: c.shardName(), Keyspace: c.Keyspace,
		TableKeyspace: c.TableKeyspace, Table: c.Table, Fence: c.Fence, From: c.BackfillFrom,
		FirstAge: c.FirstAge, ConfidenceWindow: c.ConfidenceWindow, ReadBackMargin: c.ReadBackMargin, Share: c.place().share,
		Topics: c.Topics, RetryMin: c.RetryMin, ReplayPoll: c.ReplayPoll, Logger: c.Logger, Clock: c.clock,
	}
}
