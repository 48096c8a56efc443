package relay

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
)

// Shard is one of Count equal parts of an outbox table; the zero value is the whole
// table. See cdclog.Shard.
type Shard = cdclog.Shard

// MaxShards bounds Shard.Count.
const MaxShards = cdclog.MaxShards

// shardName is the name of what the relay keeps for itself alone.
func (c *Config) shardName() string { return c.Shard.Name(c.Name) }

// onlyShare leaves of what the whole relay may take the part of its shard, and at
// least as much as a relay needs to get on.
func (c *Config) onlyShare() {
	n := c.Shard.Count
	if n < 2 {
		return
	}
	part := func(v *int, least int) {
		if *v > least {
			*v = max(*v/n, least)
		}
	}
	part(&c.MaxInFlightRecords, 100)
	part(&c.MaxAggregates, 1000)
	part(&c.MaxRememberedEvents, 10_000)
	part(&c.SpillLimit, 100)
	part(&c.ReplayConcurrency, 4)
	part(&c.BackfillRowsPerSecond, 100)
	if least := int64(c.MaxRecordBytes); c.MaxInFlightBytes > least {
		c.MaxInFlightBytes = max(c.MaxInFlightBytes/int64(n), least)
	}
	rate := func(v *float64, least float64) {
		if *v > least {
			*v = max(*v/float64(n), least)
		}
	}
	rate(&c.TailMaxQueriesPerSecond, 50)
	rate(&c.ReplayRate, 1)
}

// shardMetrics registers a shard's metrics with its label when its relay runs, and
// takes them off again when that ends: the shard may come back to the process. One
// that is made and never run leaves nothing.
type shardMetrics struct {
	prometheus.Registerer
	all  []prometheus.Collector
	runs bool // what comes now is registered at once, such as that of hints
}

func newShardMetrics(reg prometheus.Registerer, s Shard) *shardMetrics {
	return &shardMetrics{Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"shard": s.String()}, reg)}
}

// Register notes what is to be registered when the relay runs, and registers it if it
// does.
func (m *shardMetrics) Register(c prometheus.Collector) error {
	if m.runs {
		if err := m.Registerer.Register(c); err != nil {
			return err
		}
	}
	m.all = append(m.all, c)
	return nil
}

// MustRegister is Register; it panics with the first error.
func (m *shardMetrics) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		if err := m.Register(c); err != nil {
			panic(err)
		}
	}
}

// register registers what was noted, or nothing.
func (m *shardMetrics) register() error {
	for i, c := range m.all {
		if err := m.Registerer.Register(c); err != nil {
			m.all = m.all[:i]
			m.unregister()
			return fmt.Errorf("register the metrics of the shard, which another relay of this process may carry: %w", err)
		}
	}
	m.runs = true
	return nil
}

// unregister takes all off.
func (m *shardMetrics) unregister() {
	for _, c := range m.all {
		m.Unregister(c)
	}
	m.all, m.runs = nil, false
}
