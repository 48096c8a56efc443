// Package publishtest configures publishers for the tests of other packages.
package publishtest

import (
	"context"
	"log/slog"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
)

// Config returns the default configuration, without dead letters and brokers.
func Config(log *slog.Logger) publish.Config {
	rules, err := dlq.NewStrategyRules(nil)
	if err != nil {
		panic(err)
	}
	return publish.Config{
		ShardName: "outbox", Table: "outbox_messages", Source: "scylla-outbox",
		TopicTemplate: "{event_type}", Partitions: 3, Replication: -1, Tail: true, ConfidenceWindow: 2 * time.Minute,
		MaxInFlightRecords: 10_000, MaxInFlightBytes: 64 << 20, MaxRecordBytes: 1_048_588,
		Share:       new(dedup.Pool).Share(1_000_000, 500_000),
		RetryDelays: []time.Duration{0, 100 * time.Millisecond, 200 * time.Millisecond, 400 * time.Millisecond, 500 * time.Millisecond},
		RetryJitter: 0.2, RetryMin: 100 * time.Millisecond, RetryMax: 30 * time.Second, HoldRetry: time.Minute,
		AttemptTimeout: 2 * time.Second, BreakerFailures: 5, BreakerRate: 0.5, BreakerWindow: time.Minute, BreakerOpen: 30 * time.Second,
		BreakerMinCalls: 20, BreakerProbes: 3, Spill: true, SpillLimit: 10_000, Rules: rules,
		ReplayPoll: time.Second, ReplayConcurrency: 128, ReplayRate: 2000, ReplayCanary: 10, StrategyPoll: 30 * time.Second,
		ConditionBroker: 10 * time.Second, ConditionDatabase: 100 * time.Millisecond, ConditionCPU: 80, ConditionMemory: 85,
		LoadMeter: idle{}, ClaimFor: 30 * time.Second,
		ReadBackMargin: 30 * time.Second, Logger: log,
	}
}

// idle is the load of a container that does nothing.
type idle struct{}

func (idle) Load(context.Context) (publish.Load, error) { return publish.Load{}, nil }
