package relay

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/relay/internal/cdclog"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/dedup"
)

// Shard is one of Count equal parts of an outbox table; the zero value is the whole
// table. See cdclog.Shard.
type Shard = cdclog.Shard

// MaxShards bounds Shard.Count.
const MaxShards = cdclog.MaxShards

// shardName returns the name under which the relay stores its own state.
func (c *Config) shardName() string { return c.Shard.Name(c.Name) }

// onlyShare divides the limits of the relay by the number of shards, down to the
// least value that a relay needs to make progress.
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
	part(&c.SpillLimit, 100)
	part(&c.ReplayConcurrency, 4)
	part(&c.BackfillRowsPerSecond, 100)
	if least := int64(c.MaxRecordBytes); c.MaxInFlightBytes > least {
		c.MaxInFlightBytes = max(c.MaxInFlightBytes/int64(n), least)
	}
	if least := int64(10_000 * dedup.BytesPerEvent); c.DedupMemory > least {
		c.DedupMemory = max(c.DedupMemory/int64(n), least)
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
// unregisters them when the relay ends: the process may own the shard again later. A
// relay that never runs registers nothing.
type shardMetrics struct {
	prometheus.Registerer
	all  []prometheus.Collector
	runs bool // later metrics, such as those of hints, are registered immediately
}

func newShardMetrics(reg prometheus.Registerer, s Shard) *shardMetrics {
	return &shardMetrics{Registerer: prometheus.WrapRegistererWith(prometheus.Labels{"shard": s.String()}, reg)}
}

// Register records c, to be registered when the relay runs, or registers it if the
// relay runs already.
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

// register registers all recorded metrics, or none if one fails.
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

// unregister unregisters all metrics.
func (m *shardMetrics) unregister() {
	for _, c := range m.all {
		m.Unregister(c)
	}
	m.all, m.runs = nil, false
}
