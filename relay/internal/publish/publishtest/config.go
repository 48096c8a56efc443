// Package publishtest configures publishers for the tests of other packages.
package publishtest

import (
	"context"
	"log/slog"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/settings"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/publish"
)

// Config returns the default configuration, without dead letters and brokers.
func Config(log *slog.Logger) publish.Config {
	rules, err := dlq.NewStrategyRules(nil)
	if err != nil {
		panic(err)
	}
	c := publish.Config{
		ShardName: "outbox", Table: "outbox_messages", Tail: true, ConfidenceWindow: 2 * time.Minute, ReadBackMargin: 30 * time.Second,
		Share: new(dedup.Pool).Share(1_000_000, 500_000), Rules: rules, LoadMeter: idle{}, Logger: log,
	}
	c.Partitions = 3
	settings.SetDefaults(&c.Settings)
	return c
}

// idle is the load of a container that does nothing.
type idle struct{}

func (idle) Load(context.Context) (publish.Load, error) { return publish.Load{}, nil }
