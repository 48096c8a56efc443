package faults

import (
	"fmt"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/topology"
)

// Node is the part of a node that faults change beside its responses. It is safe for
// concurrent use.
type Node struct {
	topology *topology.Topology
	schema   catalog.Source
	clock    *Clock
	version  catalog.Version
}

// NewNode returns the Node of a topology and schema.
func NewNode(t *topology.Topology, schema catalog.Source, clock *Clock, version catalog.Version) *Node {
	return &Node{topology: t, schema: schema, clock: clock, version: version}
}

// batchlog returns the name of the batchlog's table.
func (n *Node) batchlog() string {
	if n != nil && n.version.HasLogInBatchlog() {
		return "batchlog_v2"
	}
	return "batchlog"
}

// start returns the time of In; zero for the topology to choose.
func (n *Node) start(in time.Duration) time.Time {
	if in == 0 {
		return time.Time{}
	}
	return n.clock.Now().Add(in)
}

// NewGeneration creates a CDC generation and returns its start. Its rows are visible
// when NewGeneration returns.
func (n *Node) NewGeneration(g Generation) (time.Time, error) {
	made, err := n.topology.NewGeneration(n.start(g.In), g.ExtraTokens)
	if err != nil {
		return time.Time{}, err
	}
	return made.Start(), nil
}

// Resize splits or merges the tablets of a table and returns when the new
// streams come into use.
func (n *Node) Resize(r Resize) (time.Time, error) {
	base, err := n.table(r.Keyspace, r.Table)
	if err != nil {
		return time.Time{}, err
	}
	if r.Merge {
		return n.topology.Merge(base, n.start(r.In))
	}
	return n.topology.Split(base, n.start(r.In))
}

// Tablets returns the number of tablets of a table in its newest stream set.
func (n *Node) Tablets(keyspace, table string) (int, error) {
	base, err := n.table(keyspace, table)
	if err != nil {
		return 0, err
	}
	tablets := n.topology.Tablets(base.StoreID)
	if tablets == 0 {
		return 0, fmt.Errorf("%s.%s has no tablet streams: it needs CDC and a keyspace with tablets", keyspace, table)
	}
	return tablets, nil
}

func (n *Node) table(keyspace, table string) (*catalog.Table, error) {
	base, ok := n.schema.Schema().Table(keyspace, table)
	if !ok {
		return nil, fmt.Errorf("no table %s.%s", keyspace, table)
	}
	return base, nil
}
