package publish

import (
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

// Config configures a publisher. All fields are required unless documented as optional.
// relay.Config documents the fields of the same name.
type Config struct {
	// ShardName identifies the relay in dead letters, Table and TableKeyspace its table.
	ShardName                          string
	Table, TableKeyspace               string
	Brokers                            []string
	Kafka                              []kgo.Opt
	Fence                              fence.Fence // optional
	Source                             string
	IDHeaders                          []string // further headers with the event's id
	Topics                             map[string]string
	TopicTemplate                      string
	Partitions                         int32
	Replication                        int16
	Tail                               bool // a tail reader runs
	ConfidenceWindow                   time.Duration
	MaxInFlightRecords                 int
	MaxInFlightBytes                   int64
	MaxRecordBytes                     int32
	Share                              *dedup.Share // of relay.Config.DedupMemory and MaxAggregates
	RetryDelays                        []time.Duration
	RetryJitter                        float64
	RetryMin, RetryMax                 time.Duration
	HoldRetry                          time.Duration
	AttemptTimeout                     time.Duration
	BreakerFailures                    int
	BreakerRate                        float64
	BreakerWindow, BreakerOpen         time.Duration
	BreakerMinCalls                    int
	BreakerProbes                      int
	Spill                              bool // while the breaker is open, up to SpillLimit
	SpillLimit                         int
	DeadLetters                        *dlq.Store     // nil without dead letters
	Clock                              *dbclock.Clock // dates dead letters and their replays; nil is that of this host
	Rules                              *dlq.StrategyRules
	Relaxed                            bool            // for event types that RelaxedTypes does not contain
	RelaxedTypes                       map[string]bool // by event type
	ReplayPoll                         time.Duration
	ReplayConcurrency                  int
	ReplayRate                         float64
	ReplayCanary                       int
	StrategyPoll                       time.Duration
	ConditionBroker, ConditionDatabase time.Duration
	ConditionCPU, ConditionMemory      float64
	LoadMeter                          LoadMeter
	ClaimFor                           time.Duration
	ReadBackMargin                     time.Duration
	Logger                             *slog.Logger
	Tracer                             oteltrace.TracerProvider // optional
}

// relaxed reports whether events of the type may pass dead letters of their aggregate.
func (c *Config) relaxed(eventType string) bool {
	if relaxed, ok := c.RelaxedTypes[eventType]; ok {
		return relaxed
	}
	return c.Relaxed
}

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
