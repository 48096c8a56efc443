package ddl

import (
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
)

// sizing returns the part of the cluster that determines how many tablets tables have.
func (c *Catalog) sizing() catalog.Sizing {
	t := c.o.Topology
	return catalog.Sizing{DataCenter: t.DataCenter, Shards: t.Shards * t.Nodes()}
}

// Tablets returns the number of tablets of a table, 0 in a keyspace without tablets, and
// of the replicas of each. A log has the numbers of its base.
func (c *Catalog) Tablets(t *catalog.Table) (count, factor int) {
	schema, sizing := c.Schema(), c.sizing()
	ks := schema.Keyspaces[t.Keyspace]
	if ks == nil || !ks.Tablets {
		return 0, 0
	}
	factor = ks.Factor(sizing.DataCenter)
	if base := ks.Base(t); base != nil {
		t = base
	}
	if n := c.o.Topology.Tablets(t.StoreID); n > 0 {
		return n, factor
	}
	k := c.counts.Load()
	if k == nil || k.schema != schema || k.sizing != sizing {
		k = &tabletCounts{schema, sizing, schema.TabletCounts(sizing)}
		c.counts.Store(k)
	}
	return k.of[t], factor
}

// tabletCounts are the numbers of tablets for one schema and cluster.
type tabletCounts struct {
	schema *catalog.Schema
	sizing catalog.Sizing
	of     map[*catalog.Table]int
}

// BalanceTablets does what a node's load balancer does at intervals: it splits or merges,
// once, every table with CDC whose tablets are not as many as the schema and the cluster
// ask for, and removes streams that are closed for longer than the ttl of the log. A
// table that an administrator resized stays as it is. resized reports whether another
// call may have more to split or merge; expires is when the next streams are to be
// removed, zero if none are.
func (c *Catalog) BalanceTablets() (resized bool, expires time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t, n := range c.Schema().TabletCounts(c.sizing()) {
		done, due, err := c.o.Topology.Balance(t, n)
		if err != nil {
			return false, time.Time{}, err
		}
		resized = resized || done
		if !due.IsZero() && (expires.IsZero() || due.Before(expires)) {
			expires = due
		}
	}
	return resized, expires, nil
}
