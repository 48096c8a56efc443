package relay

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// MaxShards bounds Shard.Count. Each shard reads the topics back at its start and
// keeps connections of its own, so more would cost more than they carry.
const MaxShards = 1024

// Shard is one of Count equal parts of an outbox table. It has the aggregates whose
// partition token lies in its part of the token ring, the Index-th from 0 on. The
// token of an aggregate never changes, so neither does its shard, whatever becomes
// of CDC generations, tablets and streams. The zero value is the whole table.
//
// Every shard of a table is carried by one relay at a time, and Count is the same
// for all. It may be changed: stop the relays of the old Count, then start those of
// the new one, which go on where the others were. Nothing is lost by that and
// nothing published twice, since they read their topics back.
//
// A table whose partition key is not the aggregate's column alone has no such
// parts: shard 0 carries it whole, and the others nothing of it.
type Shard struct {
	Index, Count int
}

// String is the shard as its relay's name has it, such as 03-of-16; empty for the
// whole table.
func (s Shard) String() string {
	if s.Count == 0 {
		return ""
	}
	return fmt.Sprintf("%02d-of-%02d", s.Index, s.Count)
}

// Name is the name under which the relay of that name keeps what it knows of the
// shard, in relay_checkpoints, relay_backfills and relay_instances: outbox/03-of-16.
// It is the relay's own name for the whole table.
func (s Shard) Name(relay string) string {
	if s.Count == 0 {
		return relay
	}
	return relay + "/" + s.String()
}

// validate returns what is wrong with s.
func (s Shard) validate() error {
	switch {
	case s.Count < 0 || s.Count > MaxShards:
		return fmt.Errorf("Shard.Count %d is not between 1 and %d, or 0 for the whole table", s.Count, MaxShards)
	case s.Index < 0 || s.Index >= max(s.Count, 1):
		return fmt.Errorf("Shard.Index %d is not between 0 and %d: Shard.Count is %d", s.Index, max(s.Count, 1)-1, s.Count)
	}
	return nil
}

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
