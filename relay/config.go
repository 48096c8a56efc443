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
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.opentelemetry.io/otel/trace"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/dbclock"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/hint"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/backfill"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/capture"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/readback"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/topics"
)

// Defaults of Config.
const (
	DefaultName                    = "outbox"
	DefaultTable                   = "outbox_messages"
	DefaultConfidenceWindow        = 2 * time.Minute
	DefaultQueryWindow             = time.Hour
	DefaultBusyDelay               = time.Second
	DefaultIdleDelay               = 5 * time.Second
	DefaultGenerationDelay         = 15 * time.Second
	DefaultFirstAge                = 72 * time.Hour
	DefaultTail                    = TailOn
	DefaultTailMinInterval         = 3 * time.Millisecond
	DefaultTailMaxInterval         = 100 * time.Millisecond
	DefaultTailOverlap             = 2 * time.Second
	DefaultTailReorder             = 20 * time.Millisecond
	DefaultTailMaxQueriesPerSecond = 1000
	DefaultGapWait                 = 5 * time.Second
	DefaultReadBackMargin          = 30 * time.Second
	DefaultReadBackQuiet           = 250 * time.Millisecond
	DefaultBackfill                = BackfillAuto
	DefaultBackfillRowsPerSecond   = 5000
	DefaultTopicTemplate           = "{event_type}"
	DebeziumTopicTemplate          = "outbox.event.${aggregate_type}"
	DefaultPartitions              = 6
	DefaultReplication             = -1
	DefaultSource                  = "scylla-outbox"
	DefaultMaxInFlightRecords      = 10_000
	DefaultMaxInFlightBytes        = 64 << 20
	DefaultMaxRecordBytes          = 1_048_588
	DefaultMaxStreamBacklog        = 10_000
	DefaultMaxAggregates           = 500_000
	DefaultDedupMemory             = 128 << 20
	DefaultRetryMin                = 100 * time.Millisecond
	DefaultRetryMax                = 30 * time.Second
	DefaultHoldRetry               = time.Minute
	DefaultRestartDelay            = 5 * time.Second
	DefaultCheckpointInterval      = time.Second
	DefaultIdleCheckpoint          = time.Minute
	DefaultDrainTimeout            = 20 * time.Second
	DefaultStallAfter              = 30 * time.Second
)

// Values of Config.Tail.
const (
	TailOn  = "on"
	TailOff = "off"
)

// Values of Config.Backfill.
const (
	BackfillAuto = "auto"
	BackfillOff  = "off"
)

// Config configures a Relay. Zero values mean the defaults. New reports every invalid
// field in one error.
type Config struct {
	// Session is the database session; the relay does not close it. Required.
	Session *gocql.Session
	// Brokers are the seed brokers of the Kafka cluster, host:port. Required.
	Brokers []string
	// Kafka are further options of the Kafka client: TLS, SASL, a dialer, hooks. They
	// cannot change the options that the relay's guarantees depend on (acks,
	// idempotence, partitioning, limits).
	Kafka []kgo.Opt

	// Name is the relay's name; relays with different names have separate checkpoints.
	// Default DefaultName.
	Name string
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
	// Table is the outbox table. Default DefaultTable.
	Table string
	// TableKeyspace is the outbox table's keyspace. Default Keyspace.
	TableKeyspace string
	// Mapping maps the columns of the table to event fields. The zero value is for the
	// columns of outbox_messages. If the table does not match, Run returns an
	// *outbox.MappingError.
	Mapping outbox.Mapping
	// Source is the CloudEvents source (ce_source). Default DefaultSource.
	Source string

	// Topics maps event types to topics; TopicTemplate applies to all other types. The
	// relay creates these topics at the start.
	Topics map[string]string
	// TopicTemplate is the topic name of an event; {event_type} and {aggregate_type},
	// with or without a preceding $, are replaced by the values of the event. Default
	// DefaultTopicTemplate, or DebeziumTopicTemplate with that preset.
	TopicTemplate string
	// Partitions is the number of partitions of topics that the relay creates. Default
	// DefaultPartitions; -1 uses the default of the broker.
	Partitions int32
	// Replication is the replication factor of topics that the relay creates. Default
	// -1, which uses the default of the broker.
	Replication int16

	// Tail is TailOn or TailOff. The tail reader reads new log rows immediately, so
	// events are published within milliseconds; without it they are published after the
	// confidence window. The guarantees of the relay are the same. Default TailOn.
	Tail string
	// TailMinInterval and TailMaxInterval are the limits of the interval between two
	// reads of a stream by the tail reader: the minimum applies to streams with new
	// rows, the maximum to idle streams. Defaults DefaultTailMinInterval,
	// DefaultTailMaxInterval.
	TailMinInterval, TailMaxInterval time.Duration
	// TailOverlap is how far back the tail reader reads again for rows that became
	// visible late; the sweep reader finds later ones. Default DefaultTailOverlap.
	TailOverlap time.Duration
	// TailReorder is how long the tail reader holds an event of a table without sequence
	// numbers for an earlier event of its aggregate that becomes visible later, as with
	// concurrent writes by writers with different clocks. A row of a writer that awaits
	// each acknowledgement may take twice TailOverlap, and in streams with few rows
	// ConfidenceWindow. A row that arrives later still is published late and counted.
	// TailReorder adds to the latency. -1 holds nothing; order is then kept only among
	// rows that become visible in the order of their write times. Default
	// DefaultTailReorder; not used for a table with sequence numbers.
	TailReorder time.Duration
	// TailMaxQueriesPerSecond limits the queries of the tail readers of a Process; each
	// reads up to 100 streams. Default DefaultTailMaxQueriesPerSecond.
	TailMaxQueriesPerSecond float64
	// Hints is the connection that receives the hints of writers, nil for none; the tail
	// reader reads the named streams immediately. The relay does not close it. See
	// package hint.
	Hints net.PacketConn
	// HintKey is shared with the writers, at least hint.MinKey bytes. Required with Hints.
	HintKey []byte

	// ConfidenceWindow is the minimum age of a change before the sweep reader reads it,
	// because an earlier change may not be visible yet. If it is too short, the sweep
	// reader misses rows that become visible late. A batch that timed out is replayed up
	// to 65 s later, so a value below DefaultConfidenceWindow risks loss on a cluster.
	// Default DefaultConfidenceWindow.
	ConfidenceWindow time.Duration
	// QueryWindow is the maximum time range of one query of the log; it only matters
	// while the relay lags. Default DefaultQueryWindow.
	QueryWindow time.Duration
	// BusyDelay is the wait between two reads of streams that had rows. Default DefaultBusyDelay.
	BusyDelay time.Duration
	// IdleDelay is the wait between two reads of streams that had none. A longer one than the
	// default also makes the relay look less often for new generations and at the database's
	// clock and the table's schema. Default DefaultIdleDelay.
	IdleDelay time.Duration
	// GenerationDelay is how often the relay checks for a new generation of streams.
	// Default DefaultGenerationDelay.
	GenerationDelay time.Duration
	// FirstAge is how far back a relay without checkpoints starts. The log contains no
	// more than the CDC ttl of the table. Default DefaultFirstAge.
	FirstAge time.Duration
	// GapWait is how long an event waits for a missing earlier event of its aggregate,
	// while the relay looks that up by key. Default DefaultGapWait; -1 does not wait.
	GapWait time.Duration

	// ReadBackMargin is the maximum difference between the clocks of writers, relays and
	// brokers. At its start the relay reads its topics back to the oldest checkpoint
	// minus this margin to find published events; this requires the right to read the
	// topics. Default DefaultReadBackMargin; -1 does not read back, so events are
	// repeated after a crash.
	ReadBackMargin time.Duration
	// ReadBackQuiet is how long the topics must receive no record before the read-back
	// ends: the broker may still write records that a killed relay sent. A longer time
	// is safer with a slow broker, and delays every start. Default DefaultReadBackQuiet.
	ReadBackQuiet time.Duration

	// Backfill is BackfillAuto or BackfillOff. With auto, the relay scans the outbox
	// table for events that the log may not contain: after it was down for longer than
	// the CDC log keeps rows, or at the first start with a table that is older than its
	// log. With off, it logs that events are missing. Default BackfillAuto.
	Backfill string
	// BackfillFrom, if not zero, requests a scan for all events written since then that
	// are not in their topics. One value requests one scan, however often the relay
	// starts with it; it is truncated to milliseconds. A relay that begins with a table that
	// relays of other names or keyspaces have begun to publish needs it, and begins there:
	// see AnotherRelayError.
	BackfillFrom time.Time
	// BackfillRowsPerSecond limits the rows that a scan reads per second. Default
	// DefaultBackfillRowsPerSecond; -1 is unlimited.
	BackfillRowsPerSecond int

	// MaxInFlightRecords limits the events that are read and not yet acknowledged.
	// Default DefaultMaxInFlightRecords.
	MaxInFlightRecords int
	// MaxInFlightBytes limits the memory of these events. Default
	// DefaultMaxInFlightBytes.
	MaxInFlightBytes int64
	// MaxRecordBytes limits one record and one batch; the max.message.bytes of a topic
	// limits them further. Default DefaultMaxRecordBytes.
	MaxRecordBytes int32
	// MaxStreamBacklog is how many changes of a stream the relay reads after one that is
	// not acknowledged. It limits the events repeated after a crash if the relay may not
	// read the topics back. Default DefaultMaxStreamBacklog.
	MaxStreamBacklog int
	// MaxAggregates is the number of idle aggregates whose last sequence numbers a
	// Process keeps in memory, about 80 bytes each. For others the relay looks up the earlier
	// events when the next event arrives. Default DefaultMaxAggregates.
	MaxAggregates int
	// DedupMemory limits the memory, in bytes, that a Process has for the ids of published
	// events, which prevent that an event is published twice. An event needs dedup.BytesPerEvent, 36
	// bytes, from its publication until the sweep reader has read its row, after the
	// confidence window. At the limit the tail reader waits for the sweep reader; at
	// 80 % of it Status reports a problem, so 45 bytes times events per second times
	// seconds of the confidence window are enough. Default DefaultDedupMemory, enough
	// for 24,855 events per second over two minutes.
	DedupMemory int64

	// RetryDelays are the delays before each attempt to publish an event; their number
	// is the number of attempts. After the last attempt the event becomes a dead letter,
	// or is retried at the last delay with DeadLettersOff. Default DefaultRetryDelays.
	RetryDelays []time.Duration
	// RetryJitter is the random share by which a delay is longer or shorter, so that
	// retries do not coincide. Default DefaultRetryJitter; -1 for none.
	RetryJitter float64
	// AttemptTimeout is how long the broker may take to acknowledge a record before the
	// breaker counts a failure. Default DefaultAttemptTimeout.
	AttemptTimeout time.Duration
	// The breaker opens after BreakerFailures consecutive failures, or at a failure rate
	// of at least BreakerRate within BreakerWindow, if that contains at least
	// BreakerMinCalls calls. It stays open for BreakerOpen and then admits BreakerProbes
	// calls: it closes if all succeed, and opens again if one fails. A call is all
	// records sent within 50 ms. Defaults DefaultBreakerFailures and so on.
	BreakerFailures            int
	BreakerRate                float64
	BreakerWindow, BreakerOpen time.Duration
	BreakerMinCalls            int
	BreakerProbes              int
	// WhenOpen is the handling of events while the breaker is open: WhenOpenSpill or
	// WhenOpenHold. Default DefaultWhenOpen; without DeadLetters always WhenOpenHold.
	WhenOpen string
	// SpillLimit is how many dead letters are written while the breaker is open before
	// the relay holds. Default DefaultSpillLimit; -1 for none.
	SpillLimit int

	// DeadLetters is DeadLettersOn or DeadLettersOff. With on, events that cannot be
	// published are written to the table dead_letter_queue of Keyspace. With off, the
	// aggregate of such an event is held and retried every HoldRetry. Default
	// DeadLettersOn.
	DeadLetters string
	// Ordering is the handling of later events of an aggregate with a dead letter:
	// OrderingStrict or OrderingRelaxed. Orderings overrides it by event type. Default
	// DefaultOrdering.
	Ordering  string
	Orderings map[string]string
	// ReplayPoll is how often the relay polls for the requests of operators about dead
	// letters, and, at most every 5 s, for those to publish missing events. Default
	// DefaultReplayPoll.
	ReplayPoll time.Duration
	// ReplayConcurrency is the number of aggregates whose dead letters are replayed
	// concurrently. Default DefaultReplayConcurrency.
	ReplayConcurrency int
	// ReplayRate limits the dead letters that are replayed per second. Default
	// DefaultReplayRate; -1 is unlimited.
	ReplayRate float64
	// ReplayCanary is the number of dead letters with equal errors up to which no canary
	// is replayed first. Default DefaultReplayCanary; -1 never sends canaries.
	ReplayCanary int
	// Rules select the strategy of dead letters, with precedence over
	// dlq.DefaultStrategyRules.
	Rules []dlq.StrategyRule
	// StrategyPoll is how often the relay checks the windows and conditions of waiting
	// dead letters. Default DefaultStrategyPoll.
	StrategyPoll time.Duration
	// The conditions of conditional dead letters: ConditionBroker is the minimum time
	// since the last failed call, ConditionDatabase the maximum duration of a read,
	// ConditionCPU and ConditionMemory the maximum Load, in percent. Defaults
	// DefaultConditionBroker and so on.
	ConditionBroker, ConditionDatabase time.Duration
	ConditionCPU, ConditionMemory      float64
	// LoadMeter measures the load of the container. Nil reads the control groups of
	// Linux.
	LoadMeter LoadMeter
	// ClaimFor is how long a worker owns a dead letter during a replay before another
	// worker may take it over. Default DefaultClaimFor.
	ClaimFor time.Duration

	// RetryMin and RetryMax are the limits of the retry delay of operations other than
	// publishing, such as creating a topic; the delay doubles. Defaults DefaultRetryMin,
	// DefaultRetryMax.
	RetryMin, RetryMax time.Duration
	// HoldRetry is the delay before a held event is retried with DeadLettersOff. Default
	// DefaultHoldRetry.
	HoldRetry time.Duration
	// RestartDelay is the delay before the reader is restarted after repeated failures.
	// Default DefaultRestartDelay.
	RestartDelay time.Duration
	// CheckpointInterval is how often checkpoints that advanced past events are saved.
	// Default DefaultCheckpointInterval.
	CheckpointInterval time.Duration
	// IdleCheckpoint is how often checkpoints that advanced without events are saved.
	// Default DefaultIdleCheckpoint.
	IdleCheckpoint time.Duration
	// AwaitTable makes the relay wait at its start for a table that does not exist or does not
	// match the mapping, instead of ending: relays of other tables run in the same process.
	// A table that has matched once is awaited without it. Status reports it.
	AwaitTable bool
	// DrainTimeout is how long a stopping relay waits for acknowledgements. Default DefaultDrainTimeout.
	DrainTimeout time.Duration
	// StallAfter is how long the relay may make no progress before it reports that it is
	// not ready. Default DefaultStallAfter.
	StallAfter time.Duration

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
	def(&c.Name, DefaultName)
	def(&c.Table, DefaultTable)
	def(&c.TableKeyspace, c.Keyspace)
	if c.Mapping.Preset == outbox.PresetDebezium {
		def(&c.TopicTemplate, DebeziumTopicTemplate)
	}
	def(&c.Source, DefaultSource)
	def(&c.TopicTemplate, DefaultTopicTemplate)
	def(&c.Partitions, DefaultPartitions)
	def(&c.Replication, DefaultReplication)
	def(&c.Tail, DefaultTail)
	def(&c.TailMinInterval, DefaultTailMinInterval)
	def(&c.TailMaxInterval, DefaultTailMaxInterval)
	def(&c.TailOverlap, DefaultTailOverlap)
	def(&c.TailReorder, DefaultTailReorder)
	def(&c.TailMaxQueriesPerSecond, DefaultTailMaxQueriesPerSecond)
	def(&c.ConfidenceWindow, DefaultConfidenceWindow)
	def(&c.QueryWindow, DefaultQueryWindow)
	def(&c.BusyDelay, DefaultBusyDelay)
	def(&c.IdleDelay, DefaultIdleDelay)
	def(&c.GenerationDelay, DefaultGenerationDelay)
	def(&c.FirstAge, DefaultFirstAge)
	def(&c.GapWait, DefaultGapWait)
	def(&c.ReadBackMargin, DefaultReadBackMargin)
	def(&c.ReadBackQuiet, DefaultReadBackQuiet)
	def(&c.Backfill, DefaultBackfill)
	def(&c.BackfillRowsPerSecond, DefaultBackfillRowsPerSecond)
	def(&c.MaxInFlightRecords, DefaultMaxInFlightRecords)
	def(&c.MaxInFlightBytes, DefaultMaxInFlightBytes)
	def(&c.MaxRecordBytes, DefaultMaxRecordBytes)
	def(&c.MaxStreamBacklog, DefaultMaxStreamBacklog)
	def(&c.MaxAggregates, DefaultMaxAggregates)
	def(&c.DedupMemory, DefaultDedupMemory)
	def(&c.RetryMin, DefaultRetryMin)
	def(&c.RetryMax, DefaultRetryMax)
	def(&c.HoldRetry, DefaultHoldRetry)
	def(&c.RestartDelay, DefaultRestartDelay)
	def(&c.CheckpointInterval, DefaultCheckpointInterval)
	def(&c.IdleCheckpoint, DefaultIdleCheckpoint)
	def(&c.DrainTimeout, DefaultDrainTimeout)
	def(&c.StallAfter, DefaultStallAfter)
	c.publishingDefaults()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registerer == nil {
		c.Registerer = prometheus.NewRegistry()
	}
	return c
}

// DefaultConfig returns a Config with all defaults.
func DefaultConfig() Config { return Config{}.withDefaults() }

// def sets a zero field to its default.
func def[T comparable](p *T, v T) { *p = cmp.Or(*p, v) }

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

// report records the problem of a field.
type report func(field, format string, args ...any)

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
	if c.Partitions < -1 {
		bad("Partitions", "%d must be positive, or -1", c.Partitions)
	}
	if c.Replication < -1 {
		bad("Replication", "%d must be positive, or -1", c.Replication)
	}
	c.validateReading(bad)
	c.validatePublishing(bad)
	c.validateBounds(bad)
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("relay configuration: %w", errors.Join(errs...))
}

// validateReading checks the settings of the readers.
func (c Config) validateReading(bad report) {
	positive := func(name string, d time.Duration) {
		if d <= 0 {
			bad(name, "%s must be positive", d)
		}
	}
	positive("ConfidenceWindow", c.ConfidenceWindow)
	if c.Tail != TailOn && c.Tail != TailOff {
		bad("Tail", "%q must be %s or %s", c.Tail, TailOn, TailOff)
	}
	if c.Hints != nil && len(c.HintKey) < hint.MinKey {
		bad("HintKey", "%d bytes, fewer than %d", len(c.HintKey), hint.MinKey)
	}
	positive("TailMinInterval", c.TailMinInterval)
	if c.TailMaxInterval < c.TailMinInterval {
		bad("TailMaxInterval", "%s is below the minimum interval, %s", c.TailMaxInterval, c.TailMinInterval)
	}
	positive("TailOverlap", c.TailOverlap)
	if c.TailReorder > c.TailOverlap {
		bad("TailReorder", "%s is above the overlap, %s", c.TailReorder, c.TailOverlap)
	}
	if c.TailMaxQueriesPerSecond <= 0 {
		bad("TailMaxQueriesPerSecond", "%g must be positive", c.TailMaxQueriesPerSecond)
	}
	if c.Backfill != BackfillAuto && c.Backfill != BackfillOff {
		bad("Backfill", "%q must be %s or %s", c.Backfill, BackfillAuto, BackfillOff)
	}
	if c.BackfillRowsPerSecond < -1 {
		bad("BackfillRowsPerSecond", "%d must be positive, or -1 for no limit", c.BackfillRowsPerSecond)
	}
	positive("QueryWindow", c.QueryWindow)
	positive("ReadBackQuiet", c.ReadBackQuiet)
	positive("BusyDelay", c.BusyDelay)
	positive("IdleDelay", c.IdleDelay)
	positive("GenerationDelay", c.GenerationDelay)
	positive("FirstAge", c.FirstAge)
	positive("RetryMin", c.RetryMin)
	positive("HoldRetry", c.HoldRetry)
	positive("RestartDelay", c.RestartDelay)
	positive("CheckpointInterval", c.CheckpointInterval)
	positive("IdleCheckpoint", c.IdleCheckpoint)
	positive("DrainTimeout", c.DrainTimeout)
	positive("StallAfter", c.StallAfter)
}

// validateBounds checks the limits.
func (c Config) validateBounds(bad report) {
	if c.RetryMax < c.RetryMin {
		bad("RetryMax", "%s is below the minimum, %s", c.RetryMax, c.RetryMin)
	}
	for _, n := range []struct {
		name string
		v    int64
	}{
		{"MaxInFlightRecords", int64(c.MaxInFlightRecords)},
		{"MaxInFlightBytes", c.MaxInFlightBytes},
		{"MaxRecordBytes", int64(c.MaxRecordBytes)},
		{"MaxStreamBacklog", int64(c.MaxStreamBacklog)},
		{"MaxAggregates", int64(c.MaxAggregates)},
		{"DedupMemory", c.DedupMemory},
	} {
		if n.v <= 0 {
			bad(n.name, "%d must be positive", n.v)
		}
	}
}

// publish returns the configuration of the publisher.
func (c *Config) publish() *publish.Config {
	relaxed := make(map[string]bool, len(c.Orderings))
	for t, o := range c.Orderings {
		relaxed[t] = o == OrderingRelaxed
	}
	return &publish.Config{
		ShardName: c.shardName(), Table: c.Table, TableKeyspace: c.TableKeyspace,
		Brokers: c.Brokers, Kafka: c.Kafka, Fence: c.Fence, Source: c.Source, IDHeaders: rows.IDHeaders(c.Mapping),
		Topics: c.Topics, TopicTemplate: c.TopicTemplate, Partitions: c.Partitions, Replication: c.Replication,
		Tail: c.Tail == TailOn, ConfidenceWindow: c.ConfidenceWindow,
		MaxInFlightRecords: c.MaxInFlightRecords, MaxInFlightBytes: c.MaxInFlightBytes, MaxRecordBytes: c.MaxRecordBytes,
		Share:       c.place().share,
		RetryDelays: c.RetryDelays, RetryJitter: c.RetryJitter, RetryMin: c.RetryMin, RetryMax: c.RetryMax,
		HoldRetry: c.HoldRetry, AttemptTimeout: c.AttemptTimeout,
		BreakerFailures: c.BreakerFailures, BreakerRate: c.BreakerRate, BreakerWindow: c.BreakerWindow, BreakerOpen: c.BreakerOpen,
		BreakerMinCalls: c.BreakerMinCalls, BreakerProbes: c.BreakerProbes,
		Spill: c.WhenOpen == WhenOpenSpill, SpillLimit: c.SpillLimit,
		DeadLetters: c.deadLetters, Clock: c.clock, Rules: c.rules, Relaxed: c.Ordering == OrderingRelaxed, RelaxedTypes: relaxed,
		ReplayPoll: c.ReplayPoll, ReplayConcurrency: c.ReplayConcurrency, ReplayRate: c.ReplayRate, ReplayCanary: c.ReplayCanary,
		StrategyPoll: c.StrategyPoll, ConditionBroker: c.ConditionBroker, ConditionDatabase: c.ConditionDatabase,
		ConditionCPU: c.ConditionCPU, ConditionMemory: c.ConditionMemory, LoadMeter: c.LoadMeter, ClaimFor: c.ClaimFor,
		ReadBackMargin: c.ReadBackMargin, Logger: c.Logger, Tracer: c.Tracer,
	}
}

// capture returns the configuration of the tail reader and the sweep reader.
func (c *Config) capture() *capture.Config {
	return &capture.Config{
		Session: c.Session, TableKeyspace: c.TableKeyspace, Table: c.Table,
		ConfidenceWindow: c.ConfidenceWindow, QueryWindow: c.QueryWindow, BusyDelay: c.BusyDelay, IdleDelay: c.IdleDelay,
		GenerationDelay: c.GenerationDelay, FirstAge: c.FirstAge, GapWait: c.GapWait, IdleCheckpoint: c.IdleCheckpoint,
		TailMinInterval: c.TailMinInterval, TailMaxInterval: c.TailMaxInterval, TailOverlap: c.TailOverlap, TailReorder: c.TailReorder,
		TailLimiter: c.place().tail, MaxInFlightRecords: c.MaxInFlightRecords, MaxInFlightBytes: c.MaxInFlightBytes, RetryMin: c.RetryMin, Logger: c.Logger,
		Clock: c.clock,
	}
}

// readback returns the configuration of read-back and proofs.
func (c *Config) readback() *readback.Config {
	return &readback.Config{
		Source: c.Source, Table: c.TableKeyspace + "." + c.Table, MaxRecordBytes: c.MaxRecordBytes,
		Topics: c.Topics, FirstAge: c.FirstAge, ReadBackMargin: c.ReadBackMargin, ReadBackQuiet: c.ReadBackQuiet,
		MaxInFlightRecords: c.MaxInFlightRecords, Share: c.place().share,
		RetryMin: c.RetryMin, RetryMax: c.RetryMax, Logger: c.Logger, Clock: c.clock,
	}
}

// backfill returns the configuration of scans and repairs.
func (c *Config) backfill() *backfill.Config {
	return &backfill.Config{
		Session: c.Session, Name: c.Name, ShardName: c.shardName(), Keyspace: c.Keyspace, TableKeyspace: c.TableKeyspace, Table: c.Table,
		Fence: c.Fence, Auto: c.Backfill == BackfillAuto, From: c.BackfillFrom, RowsPerSecond: c.BackfillRowsPerSecond,
		FirstAge: c.FirstAge, ConfidenceWindow: c.ConfidenceWindow, ReadBackMargin: c.ReadBackMargin, Share: c.place().share,
		Topics: c.Topics, RetryMin: c.RetryMin, ReplayPoll: c.ReplayPoll, Logger: c.Logger, Clock: c.clock,
	}
}
