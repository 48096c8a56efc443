package publish

import (
	"cmp"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/dbclock"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/fence"
)

// Values of Settings.WhenOpen.
const (
	// WhenOpenSpill writes dead letters for waiting events while the breaker is open, up to
	// SpillLimit; then the relay holds. They are replayed when the breaker closes.
	WhenOpenSpill = "spill"
	// WhenOpenHold keeps waiting events in memory, and stops reading when memory is full.
	WhenOpenHold = "hold"
)

// Values of Settings.Ordering.
const (
	// OrderingStrict blocks the later events of an aggregate with a dead letter.
	OrderingStrict = "strict"
	// OrderingRelaxed does not block later events; they may be published before the dead
	// letters of their aggregate.
	OrderingRelaxed = "relaxed"
)

// Settings configure publishing, failures and dead letters, see package settings for the tags.
type Settings struct {
	Source string `setting:"source" default:"scylla-outbox" usage:"CloudEvents source (header ce_source)"`
	// TopicTemplate: {event_type} and {aggregate_type} may have a preceding $. The default of
	// a table with the preset debezium is DebeziumTopicTemplate.
	TopicTemplate string `setting:"topic" default:"{event_type}" usage:"topic of an event; {event_type} and {aggregate_type} are replaced by the event's"`
	// Topics: the relay creates these topics at the start.
	Topics      map[string]string `setting:"topics" pairs:"type=topic, such as OrderCreated=orders.created" usage:"topics by event type, type=topic; others follow relay.topic"`
	Partitions  int32             `setting:"topic_partitions" default:"6" off:"-1" usage:"partitions of a topic that the relay makes; off leaves it to the broker"`
	Replication int16             `setting:"topic_replication" production:"true" default:"off" off:"-1" usage:"replication of a topic that the relay makes; off leaves it to the broker; Redpanda accepts odd numbers alone"`

	// MaxInFlightRecords limits the events that are read and not yet acknowledged,
	// MaxInFlightBytes their memory.
	MaxInFlightRecords int   `default:"10000" min:"1"`
	MaxInFlightBytes   int64 `default:"67108864" min:"1"`
	MaxRecordBytes     int32 `setting:"max_record_bytes" default:"1048588" min:"1" usage:"size of a record and of a batch, at most; a topic's max.message.bytes bounds it further"`

	// RetryDelays: after the last attempt the event becomes a dead letter, or is retried at
	// the last delay without dead letters.
	RetryDelays []time.Duration `setting:"retry_delays" default:"0s,100ms,200ms,400ms,500ms" min:"0s" max:"1h" usage:"wait before each attempt to publish an event; their number is that of the attempts. 0s,1s,2s,4s is the other usual profile"`
	// RetryJitter is the random share by which a delay is longer or shorter, so that retries do
	// not coincide; -1 for none.
	RetryJitter float64 `default:"0.2" off:"-1" max:"1"`
	// RetryMin and RetryMax are the limits of the retry delay of operations other than
	// publishing, such as creating a topic; the delay doubles.
	RetryMin time.Duration `default:"100ms" min:"1ns"`
	RetryMax time.Duration `default:"30s"`
	// HoldRetry is the delay before a held event is retried without dead letters.
	HoldRetry      time.Duration `default:"1m" min:"1ns"`
	AttemptTimeout time.Duration `setting:"attempt_timeout" default:"2s" min:"10ms" max:"10m" usage:"how long the broker may take to acknowledge before that is a failure"`

	// The breaker opens after BreakerFailures consecutive failures, or at a failure rate of at
	// least BreakerRate within BreakerWindow, if that contains at least BreakerMinCalls calls.
	// It stays open for BreakerOpen and then admits BreakerProbes calls: it closes if all
	// succeed, and opens again if one fails. A call is all records sent within 50 ms.
	BreakerFailures int           `default:"5" min:"1" max:"10000"`
	BreakerRate     float64       `default:"0.5" min:"0.000001" max:"1"`
	BreakerWindow   time.Duration `default:"1m" min:"1s" max:"1h"`
	BreakerOpen     time.Duration `setting:"breaker_open" default:"30s" min:"100ms" max:"1h" usage:"how long the breaker stays open before it lets probes through"`
	BreakerMinCalls int           `default:"20" min:"1" max:"1000000"`
	BreakerProbes   int           `default:"3" min:"1" max:"100"`
	// WhenOpen is the handling of events while the breaker is open: WhenOpenSpill or
	// WhenOpenHold; without dead letters always WhenOpenHold.
	WhenOpen   string `default:"spill" oneof:"spill hold"`
	SpillLimit int    `setting:"spill_limit" default:"10000" off:"-1" max:"10000000" field:"WhenOpen" usage:"dead letters that are written while the breaker is open, and published when it closes; beyond the limit, and with off, the relay keeps events in the CDC log"`

	Ordering  string            `setting:"ordering" default:"strict" oneof:"strict relaxed" usage:"strict: later events of an aggregate wait behind its dead letter. relaxed: they pass"`
	Orderings map[string]string `setting:"orderings" pairs:"type=ordering, such as OrderViewed=relaxed" usage:"the same by event type, type=strict or type=relaxed"`

	// ReplayPoll is how often the relay polls for the requests of operators about dead letters,
	// and, at most every 5 s, for those to publish missing events.
	ReplayPoll time.Duration `default:"1s" min:"10ms" max:"1m"`
	// ReplayConcurrency is the number of aggregates whose dead letters are replayed
	// concurrently, ReplayRate the dead letters that are replayed per second; -1 is unlimited.
	ReplayConcurrency int     `default:"128" min:"1" max:"1000"`
	ReplayRate        float64 `default:"2000" off:"-1" min:"0.01" max:"1000000"`
	// ReplayCanary is the number of dead letters with equal errors up to which no canary is
	// replayed first; -1 never sends canaries.
	ReplayCanary int `default:"10" off:"-1" max:"1000000"`
	// StrategyPoll is how often the relay checks the windows and conditions of waiting dead
	// letters.
	StrategyPoll time.Duration `default:"30s" min:"100ms" max:"1h"`
	// The conditions of conditional dead letters: ConditionBroker is the minimum time since the
	// last failed call, ConditionDatabase the maximum duration of a read, ConditionCPU and
	// ConditionMemory the maximum Load, in percent; 101 always holds.
	ConditionBroker   time.Duration `default:"10s" min:"1ms" max:"1h"`
	ConditionDatabase time.Duration `default:"100ms" min:"1us" max:"1m"`
	ConditionCPU      float64       `default:"80" min:"0.001" max:"101"`
	ConditionMemory   float64       `default:"85" min:"0.001" max:"101"`
	// ClaimFor is how long a worker owns a dead letter during a replay before another worker
	// may take it over.
	ClaimFor time.Duration `default:"30s" min:"1s" max:"1h"`
}

// Config configures a publisher. All fields are required unless documented as optional.
type Config struct {
	Settings
	// ShardName identifies the relay in dead letters, Table and TableKeyspace its table.
	ShardName            string
	Table, TableKeyspace string
	Brokers              []string
	Kafka                []kgo.Opt
	Fence                fence.Fence // optional
	IDHeaders            []string    // further headers with the event's id
	Tail                 bool        // a tail reader runs
	ConfidenceWindow     time.Duration
	ReadBackMargin       time.Duration
	Share                *dedup.Share   // of relay.Config.DedupMemory and MaxAggregates
	DeadLetters          *dlq.Store     // nil without dead letters
	Clock                *dbclock.Clock // dates dead letters and their replays; nil is that of this host
	Rules                *dlq.StrategyRules
	LoadMeter            LoadMeter
	Logger               *slog.Logger
	Tracer               oteltrace.TracerProvider // optional
}

// relaxed reports whether events of the type may pass dead letters of their aggregate.
func (c *Config) relaxed(eventType string) bool {
	return cmp.Or(c.Orderings[eventType], c.Ordering) == OrderingRelaxed
}

// writesDeadLetters reports whether a table for dead letters exists.
func (c *Config) writesDeadLetters() bool { return c.DeadLetters != nil }

// tableName returns the name of the outbox table, with its keyspace.
func (c *Config) tableName() string { return c.TableKeyspace + "." + c.Table }

// UsedUpAfter returns the time with the producer after which the attempts of an event
// count as used up, by the delays before its attempts and the timeout of one.
func UsedUpAfter(delays []time.Duration, attemptTimeout time.Duration) time.Duration {
	d := time.Duration(len(delays)) * attemptTimeout
	for _, w := range delays {
		d += w
	}
	return d
}

// fenced reports whether this instance must not publish any more, because another
// instance may own its shard.
func (c *Config) fenced() bool { return c.Fence != nil && c.Fence.Check() != nil }

// retryWait returns the wait before the next attempt, with jitter, after the given number
// of attempts.
func (c *Config) retryWait(attempts int) time.Duration {
	d := c.RetryDelays[min(attempts, len(c.RetryDelays)-1)]
	return time.Duration(float64(d) * (1 + max(c.RetryJitter, 0)*(2*rand.Float64()-1)))
}
