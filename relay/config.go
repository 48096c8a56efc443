package relay

import (
	"cmp"
	"context"
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

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/relay/hint"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/backfill"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/readback"
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
	DefaultTailMinInterval         = 5 * time.Millisecond
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
	DefaultMaxRememberedEvents     = 1_000_000
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

// Config configures a Relay. Zero values mean the defaults; New says of every
// field that is out of bounds at once.
type Config struct {
	// Session reaches the database; the relay does not close it. Required.
	Session *gocql.Session
	// Brokers are the first addresses of the Kafka cluster, host:port. Required.
	Brokers []string
	// Kafka are further options of the Kafka client: TLS, SASL, a dialer, hooks.
	// What the relay's promises rest on (acks, idempotence, partitioning, limits)
	// cannot be changed by them.
	Kafka []kgo.Opt

	// Name is the relay's name; relays of different names keep their own
	// checkpoints. Default DefaultName.
	Name string
	// Shard makes the relay carry one of several equal parts of the table, which
	// it names in its checkpoints, its log (shard) and its metrics (a label of that
	// name; they leave Registerer when Run returns). What bounds memory, rates and
	// dead letters below is the whole relay's, of which a shard has its share:
	// MaxInFlightRecords, MaxInFlightBytes, MaxAggregates, MaxRememberedEvents,
	// SpillLimit, ReplayConcurrency, ReplayRate, BackfillRowsPerSecond,
	// TailMaxQueriesPerSecond. The zero value carries the whole table.
	Shard Shard
	// Fence, if not nil, says by an error that another relay may own what this one
	// carries by now. It is asked before anything is published or made a dead letter,
	// once more before each write to a connection, and must be quick and safe for
	// concurrent use. Once it returned an error it has to go on doing so; Run then
	// waits for nothing that is under way, and saves no checkpoint. Who fences also
	// ends Run's context. See package share.
	Fence func() error
	// ReadBacks, if not nil, is the same for all shards of this table that the process
	// carries: those that begin together read the topics back together, once. Default
	// nil: each reads them for itself.
	ReadBacks *readback.Group
	// Keyspace holds relay_checkpoints and relay_topics, and the outbox table
	// unless TableKeyspace names another. Required.
	Keyspace string
	// Table is the outbox table. Default DefaultTable.
	Table string
	// TableKeyspace is the outbox table's keyspace. Default Keyspace.
	TableKeyspace string
	// Mapping says which columns of the table hold what. The zero value is for
	// the columns of outbox_messages. What does not fit ends Run, with an
	// *outbox.MappingError.
	Mapping outbox.Mapping
	// Source is the CloudEvents source (ce_source). Default DefaultSource.
	Source string

	// Topics maps event types to topics; a type that is not in it goes by
	// TopicTemplate. The topics in it are made at the start.
	Topics map[string]string
	// TopicTemplate names the topic of an event; {event_type} and
	// {aggregate_type}, with or without a $ before them, stand for the event's.
	// Default DefaultTopicTemplate, or DebeziumTopicTemplate with that preset.
	TopicTemplate string
	// Partitions is the number of partitions of a topic that the relay makes.
	// Default DefaultPartitions; -1 leaves it to the broker.
	Partitions int32
	// Replication is the replication factor of a topic that the relay makes.
	// Default -1, which leaves it to the broker.
	Replication int16

	// Tail is TailOn or TailOff. The tail reads the log at once, so events go out
	// within milliseconds; without it they do when the confidence window has
	// gone by. It changes nothing in what the relay promises. Default TailOn.
	Tail string
	// TailMinInterval and TailMaxInterval bound the wait between two readings of
	// the same streams by the tail: streams with new rows are read again after
	// the first, idle ones after the second. Defaults DefaultTailMinInterval,
	// DefaultTailMaxInterval.
	TailMinInterval, TailMaxInterval time.Duration
	// TailOverlap is how far back the tail looks for rows that became visible
	// late; those later still the sweep finds. Default DefaultTailOverlap.
	TailOverlap time.Duration
	// TailReorder is how long the tail holds an event of a table without numbers
	// for an earlier one of its aggregate that becomes visible after it: writes
	// under way at the same time, by writers whose clocks differ. A row of a writer
	// that awaits each acknowledgement may take twice TailOverlap, and where streams
	// have few rows ConfidenceWindow. What comes later still goes out late, and is
	// counted. The latency grows by TailReorder. -1 holds nothing, so that only rows
	// that become visible in the order of their write times keep it.
	// Default DefaultTailReorder; a table with numbers does not use it.
	TailReorder time.Duration
	// TailMaxQueriesPerSecond bounds the queries of the tail; each reads up to
	// 100 streams. Default DefaultTailMaxQueriesPerSecond.
	TailMaxQueriesPerSecond float64
	// Hints is where writers' hints come in, nil for nowhere; the tail reads the
	// streams they name at once. The relay does not close it. See package hint.
	Hints net.PacketConn
	// HintKey is shared with the writers, at least hint.MinKey bytes. Required with Hints.
	HintKey []byte

	// ConfidenceWindow is how old a change must be before the sweep reads it,
	// because an earlier one may still be on its way. One that is too short
	// passes over a row that turns up late. A batch that timed out is
	// replayed up to 65 s later, so less than DefaultConfidenceWindow risks
	// loss on a cluster. Default DefaultConfidenceWindow.
	ConfidenceWindow time.Duration
	// QueryWindow is how much time one query of the log covers at most; it only
	// matters when the relay is behind. Default DefaultQueryWindow.
	QueryWindow time.Duration
	// BusyDelay is the wait between two reads of streams that had rows. Default DefaultBusyDelay.
	BusyDelay time.Duration
	// IdleDelay is the wait between two reads of streams that had none. Default DefaultIdleDelay.
	IdleDelay time.Duration
	// GenerationDelay is how often the relay asks for a new generation of
	// streams. Default DefaultGenerationDelay.
	GenerationDelay time.Duration
	// FirstAge is how far back a relay of this name starts when it never ran
	// before. The log holds no more than the table's CDC ttl. Default DefaultFirstAge.
	FirstAge time.Duration
	// GapWait is how long an event waits for a missing one before it in its
	// aggregate, which is looked up by key meanwhile. Default DefaultGapWait;
	// -1 does not wait.
	GapWait time.Duration

	// ReadBackMargin is how much the clocks of writers, relays and brokers may
	// differ. At its start the relay reads its topics back to the oldest
	// checkpoint and by so much further, to learn what is out already; that needs
	// the right to read them. Default DefaultReadBackMargin; -1 does not read
	// back, so a crash repeats events.
	ReadBackMargin time.Duration
	// ReadBackQuiet is how long nothing may have come to the topics before they
	// count as read back: what a killed relay had sent may still be written.
	// Longer is safer with a broker that takes long to take a request, and every
	// start takes so much longer. Default DefaultReadBackQuiet.
	ReadBackQuiet time.Duration

	// Backfill is BackfillAuto or BackfillOff. A relay that was away for longer
	// than the CDC log keeps its rows, or that starts for the first time with a
	// table that is older than its log, scans the outbox table for what the log
	// may not have. Off, it says that events are missing. Default BackfillAuto.
	Backfill string
	// BackfillFrom, if not zero, asks for a scan for all events written since
	// then that are not in their topics. The same time asks once, however often
	// the relay is started with it; it is taken to the millisecond.
	BackfillFrom time.Time
	// BackfillRowsPerSecond bounds how many rows a scan reads. Default
	// DefaultBackfillRowsPerSecond; -1 does not bound it.
	BackfillRowsPerSecond int

	// MaxInFlightRecords bounds the events read and not yet acknowledged. Default DefaultMaxInFlightRecords.
	MaxInFlightRecords int
	// MaxInFlightBytes bounds their size in memory. Default DefaultMaxInFlightBytes.
	MaxInFlightBytes int64
	// MaxRecordBytes bounds one record and one batch; a topic's own
	// max.message.bytes bounds it further. Default DefaultMaxRecordBytes.
	MaxRecordBytes int32
	// MaxStreamBacklog is how many changes of one stream may be read past one
	// that is not acknowledged. It bounds what a crash repeats where the topics
	// may not be read back. Default DefaultMaxStreamBacklog.
	MaxStreamBacklog int
	// MaxAggregates is how many idle aggregates' last sequence numbers are
	// remembered, at some 80 bytes each. Of one that is forgotten the earlier
	// events are looked up when another one comes. Default DefaultMaxAggregates.
	MaxAggregates int
	// MaxRememberedEvents is how many events may be out before the sweep has
	// come to their rows, which is after the confidence window. Their ids are
	// remembered, at some 40 bytes each, so that none goes out twice; beyond
	// the bound the tail waits for the sweep, and at 80 % of it Status reports a
	// problem: 1.25 times the events of one confidence window are enough. Default
	// DefaultMaxRememberedEvents, enough for 6,666 events per second over two minutes.
	MaxRememberedEvents int

	// RetryDelays are the waits before each attempt to publish an event; their
	// number is the number of attempts. An event that is not out then becomes a
	// dead letter, or with DeadLettersOff is tried on at the last wait. Default
	// DefaultRetryDelays.
	RetryDelays []time.Duration
	// RetryJitter is the share by which a wait is made longer or shorter at
	// random, so that many do not come at once. Default DefaultRetryJitter; -1 for none.
	RetryJitter float64
	// AttemptTimeout is how long the broker may take to acknowledge before the
	// breaker counts a failure. Default DefaultAttemptTimeout.
	AttemptTimeout time.Duration
	// BreakerFailures in a row open the breaker, and so does a share of failures of
	// BreakerRate or more in the last BreakerWindow, once it holds BreakerMinCalls
	// calls. It stays open for BreakerOpen; then BreakerProbes calls are let
	// through: if all succeed it closes, if one fails it opens again. A call is
	// what is sent within 50 ms. Defaults DefaultBreakerFailures and so on.
	BreakerFailures            int
	BreakerRate                float64
	BreakerWindow, BreakerOpen time.Duration
	BreakerMinCalls            int
	BreakerProbes              int
	// WhenOpen is what happens to events while the breaker is open:
	// WhenOpenSpill or WhenOpenHold. Default DefaultWhenOpen; without
	// DeadLetters always WhenOpenHold.
	WhenOpen string
	// SpillLimit is how many dead letters an open breaker makes before the relay
	// holds. Default DefaultSpillLimit; -1 for none.
	SpillLimit int

	// DeadLetters is DeadLettersOn or DeadLettersOff. On, what cannot be published
	// goes to the table dead_letter_queue of Keyspace. Off, the aggregate of such an
	// event is held and tried again every HoldRetry. Default DeadLettersOn.
	DeadLetters string
	// Ordering says what happens to the later events of an aggregate with a dead
	// letter: OrderingStrict or OrderingRelaxed. Orderings says so by event type.
	// Default DefaultOrdering.
	Ordering  string
	Orderings map[string]string
	// ReplayPoll is how often the relay asks what operators want done with dead
	// letters. Default DefaultReplayPoll.
	ReplayPoll time.Duration
	// ReplayConcurrency is how many aggregates' dead letters are replayed at the
	// same time. Default DefaultReplayConcurrency.
	ReplayConcurrency int
	// ReplayRate bounds how many dead letters are replayed per second. Default
	// DefaultReplayRate; -1 does not bound it.
	ReplayRate float64
	// ReplayCanary is how many letters with equal errors are replayed without
	// canaries before them. Default DefaultReplayCanary; -1 never sends canaries.
	ReplayCanary int
	// Rules choose the strategy of dead letters, before those of dlq.DefaultStrategyRules.
	Rules []dlq.StrategyRule
	// StrategyPoll is how often it is looked at whether what waits for a window or
	// a condition may go. Default DefaultStrategyPoll.
	StrategyPoll time.Duration
	// The conditions of conditional letters: ConditionBroker is how long no call
	// may have failed, ConditionDatabase how long a read may take, ConditionCPU and
	// ConditionMemory the greatest Load, in percent. Defaults
	// DefaultConditionBroker and so on.
	ConditionBroker, ConditionDatabase time.Duration
	ConditionCPU, ConditionMemory      float64
	// Load measures how busy the container is. Nil reads Linux's control groups.
	Load func(context.Context) (publish.Load, error)
	// ClaimFor is how long a replay may take before another worker may take the
	// dead letter over. Default DefaultClaimFor.
	ClaimFor time.Duration

	// RetryMin and RetryMax bound the wait before something fails again that is
	// no attempt to publish, such as making a topic; it doubles from one to the
	// other. Defaults DefaultRetryMin, DefaultRetryMax.
	RetryMin, RetryMax time.Duration
	// HoldRetry is the wait before an event that cannot be sent is tried again,
	// with DeadLettersOff. Default DefaultHoldRetry.
	HoldRetry time.Duration
	// RestartDelay is the wait before the reader is started again after it
	// failed repeatedly. Default DefaultRestartDelay.
	RestartDelay time.Duration
	// CheckpointInterval is how often checkpoints that passed events are saved. Default DefaultCheckpointInterval.
	CheckpointInterval time.Duration
	// IdleCheckpoint is how often checkpoints that passed only empty time are
	// saved. Default DefaultIdleCheckpoint.
	IdleCheckpoint time.Duration
	// DrainTimeout is how long a stopping relay waits for acknowledgements. Default DefaultDrainTimeout.
	DrainTimeout time.Duration
	// StallAfter is how long nothing may move before the relay says that it is
	// not ready. Default DefaultStallAfter.
	StallAfter time.Duration

	letters  *dlq.Store         // nil without dead letters; set by New
	rules    *dlq.StrategyRules // of Rules; nil if they are wrong, which rulesErr says
	rulesErr error

	// Logger receives the relay's log. Nil discards it.
	Logger *slog.Logger
	// Registerer receives the relay's metrics. Nil keeps them private.
	Registerer prometheus.Registerer
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
	def(&c.MaxRememberedEvents, DefaultMaxRememberedEvents)
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

// DefaultConfig returns the defaults of the fields that have some.
func DefaultConfig() Config { return Config{}.withDefaults() }

// def gives a field that has none its default.
func def[T comparable](p *T, v T) { *p = cmp.Or(*p, v) }

// identifier is what the library can put into its queries: it does not quote.
var identifier = regexp.MustCompile(`^[a-z][a-z0-9_]{0,47}$`)

// FieldError is a field of Config with a value that New refuses.
type FieldError struct {
	Field string // its name in Config
	Err   error  // the value, and what is allowed
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns Err.
func (e *FieldError) Unwrap() error { return e.Err }

// report collects the problem of a field.
type report func(field, format string, args ...any)

// Validate returns what New refuses, but for the session: that need not be there yet.
// The error joins a *FieldError for each problem.
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
		bad("Brokers", "empty: name at least one broker")
	}
	if err := c.Shard.Validate(); err != nil {
		bad("Shard", "%w", err)
	}
	if !identifier.MatchString(c.Keyspace) {
		bad("Keyspace", "%q is not an unquoted CQL name", c.Keyspace)
	}
	if !identifier.MatchString(c.Table) {
		bad("Table", "%q is not an unquoted CQL name: use lower-case letters, digits and _; the reader of the CDC log does not quote names", c.Table)
	}
	if !identifier.MatchString(c.TableKeyspace) {
		bad("TableKeyspace", "%q is not an unquoted CQL name: use lower-case letters, digits and _; the reader of the CDC log does not quote names", c.TableKeyspace)
	}
	if err := c.Mapping.Validate(); err != nil {
		bad("Mapping", "%w", err)
	}
	for _, t := range slices.Sorted(maps.Keys(c.Topics)) {
		if !publish.ValidTopic(c.Topics[t]) {
			bad("Topics", "%q (for %s) is no topic name", c.Topics[t], t)
		}
	}
	if !publish.ValidTopic(publish.ExpandTopic(c.TopicTemplate, "x", "x")) {
		bad("TopicTemplate", "%q makes no topic names: beside ${event_type} and ${aggregate_type} use letters, digits, '.', '_' and '-'", c.TopicTemplate)
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

// validateReading checks how the log is read.
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
		bad("BackfillRowsPerSecond", "%d must be positive, or -1 for no bound", c.BackfillRowsPerSecond)
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

// validateBounds checks what the relay may hold and ask for.
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
		{"MaxRememberedEvents", int64(c.MaxRememberedEvents)},
	} {
		if n.v <= 0 {
			bad(n.name, "%d must be positive", n.v)
		}
	}
}

// fenced says that the relay may publish nothing more: another one may own what it
// carries.
func (c *Config) fenced() bool { return c.Fence != nil && c.Fence() != nil }

// engine returns the configuration of the publisher.
func (c *Config) engine() *publish.Config {
	relaxed := make(map[string]bool, len(c.Orderings))
	for t, o := range c.Orderings {
		relaxed[t] = o == OrderingRelaxed
	}
	return &publish.Config{
		Name: c.Name, ShardName: c.shardName(), Table: c.Table, TableKeyspace: c.TableKeyspace, Keyspace: c.Keyspace,
		Brokers: c.Brokers, Kafka: c.Kafka, Fence: c.Fence, Source: c.Source,
		Topics: c.Topics, TopicTemplate: c.TopicTemplate, Partitions: c.Partitions, Replication: c.Replication,
		Tail: c.Tail == TailOn, ConfidenceWindow: c.ConfidenceWindow,
		MaxInFlightRecords: c.MaxInFlightRecords, MaxInFlightBytes: c.MaxInFlightBytes, MaxRecordBytes: c.MaxRecordBytes,
		MaxAggregates: c.MaxAggregates, MaxRememberedEvents: c.MaxRememberedEvents,
		RetryDelays: c.RetryDelays, RetryJitter: c.RetryJitter, RetryMin: c.RetryMin, RetryMax: c.RetryMax,
		HoldRetry: c.HoldRetry, AttemptTimeout: c.AttemptTimeout,
		BreakerFailures: c.BreakerFailures, BreakerRate: c.BreakerRate, BreakerWindow: c.BreakerWindow, BreakerOpen: c.BreakerOpen,
		BreakerMinCalls: c.BreakerMinCalls, BreakerProbes: c.BreakerProbes,
		Spill: c.WhenOpen == WhenOpenSpill, SpillLimit: c.SpillLimit, StallAfter: c.StallAfter,
		DeadLetters: c.letters, Rules: c.rules, Relaxed: c.Ordering == OrderingRelaxed, RelaxedTypes: relaxed,
		ReplayPoll: c.ReplayPoll, ReplayConcurrency: c.ReplayConcurrency, ReplayRate: c.ReplayRate, ReplayCanary: c.ReplayCanary,
		StrategyPoll: c.StrategyPoll, ConditionBroker: c.ConditionBroker, ConditionDatabase: c.ConditionDatabase,
		ConditionCPU: c.ConditionCPU, ConditionMemory: c.ConditionMemory, Load: c.Load, ClaimFor: c.ClaimFor,
		ReadBackMargin: c.ReadBackMargin, Logger: c.Logger,
	}
}

// readback returns the configuration of read-back and proofs.
func (c *Config) readback() *readback.Config {
	return &readback.Config{
		Source: c.Source, Topics: c.Topics, FirstAge: c.FirstAge, ReadBackMargin: c.ReadBackMargin, ReadBackQuiet: c.ReadBackQuiet,
		MaxInFlightRecords: c.MaxInFlightRecords, MaxRememberedEvents: c.MaxRememberedEvents,
		RetryMin: c.RetryMin, RetryMax: c.RetryMax, Logger: c.Logger,
	}
}

// backfill returns the configuration of scans and repairs.
func (c *Config) backfill() *backfill.Config {
	return &backfill.Config{
		Session: c.Session, Name: c.Name, ShardName: c.shardName(), Keyspace: c.Keyspace, TableKeyspace: c.TableKeyspace, Table: c.Table,
		Fence: c.Fence, Auto: c.Backfill == BackfillAuto, From: c.BackfillFrom, RowsPerSecond: c.BackfillRowsPerSecond,
		FirstAge: c.FirstAge, ConfidenceWindow: c.ConfidenceWindow, ReadBackMargin: c.ReadBackMargin, MaxAggregates: c.MaxAggregates,
		Topics: c.Topics, RetryMin: c.RetryMin, Logger: c.Logger,
	}
}
