package cdc

import (
	"sync/atomic"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/topology"
)

// Manager makes log rows. It is safe for concurrent use.
type Manager struct {
	schema  catalog.Source
	streams *topology.Topology
	source  source
	plans   atomic.Pointer[planCache]
}

// NewManager returns a Manager for the node with this schema and streams. The
// seed determines the order in which the log has changes of one microsecond.
func NewManager(schema catalog.Source, streams *topology.Topology, seed uint64) *Manager {
	m := &Manager{schema: schema, streams: streams}
	m.source.state.Store(seed)
	return m
}

// Augment returns the log mutations of muts, which have each row once, in clustering order,
// and disjoint ranges, for the same store.Apply; tables without
// CDC have none. Each call gives a change a cdc$time of its own, so a write that is
// executed again is logged again. now is the node's wall clock: timestamps are checked
// against it, and the TTL of the log counts from it.
//
// The error is the one with which ScyllaDB refuses the whole write, mostly for a
// timestamp that no usable generation covers.
func (m *Manager) Augment(muts []*store.Mutation, now time.Time) ([]*store.Mutation, error) {
	var out []*store.Mutation
	for _, mut := range muts {
		p, err := m.plan(mut.Table)
		if err != nil {
			return nil, err
		}
		if p == nil {
			continue
		}
		if out == nil {
			out = make([]*store.Mutation, 0, len(muts))
		}
		t := transformer{plan: p, streams: m.streams, source: &m.source, base: mut, now: now, out: out}
		if err := t.run(); err != nil {
			return nil, err
		}
		out = t.out
	}
	return out, nil
}
