package cdc

import (
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/topology"
)

// transformer makes the log rows of one mutation.
type transformer struct {
	plan    *plan
	streams *topology.Topology
	base    *store.Mutation
	source  *source
	now     time.Time
	out     []*store.Mutation

	keys   [][]byte
	keyBuf [4][]byte
	rec    record
}

// run appends the log mutations of the base mutation to out: one for each
// timestamp.
func (t *transformer) run() error {
	c := change{rows: t.base.Rows, ranges: t.base.Ranges, deleted: t.base.Deleted}
	if s := t.base.Static; s != nil && len(s.Columns) > 0 {
		c.static = s
	}
	if len(t.plan.base.Clustering) == 0 {
		c = withoutRowDeletions(c)
	}
	ts, split, ok := needsSplit(&c)
	if !ok {
		return nil
	}
	keys, err := t.plan.base.DecodeKey(t.base.Key, t.keyBuf[:0])
	if err != nil {
		return cqlerr.New(cqlerr.Server, "cdc: %s.%s: %v", t.plan.base.Keyspace, t.plan.base.Name, err)
	}
	t.keys = keys
	groups := []*group{{ts: ts, rows: c.rows, ranges: c.ranges, partition: c.deleted.Set}}
	if c.static != nil {
		groups[0].statics = []store.Row{*c.static}
	}
	if split {
		groups = splitChange(&c)
	}
	for _, g := range groups {
		if err := t.group(g); err != nil {
			return err
		}
	}
	return nil
}

// withoutRowDeletions turns the deletion of the one row of a partition into the
// deletion of the partition, as ScyllaDB does.
func withoutRowDeletions(c change) change {
	if len(c.rows) == 0 || !c.rows[0].Deleted.Set {
		return c
	}
	r := c.rows[0]
	if !c.deleted.Set || r.Deleted.Timestamp > c.deleted.Timestamp {
		c.deleted = r.Deleted
	}
	r.Deleted = store.Deletion{}
	c.rows = []store.Row{r}
	return c
}

// begin starts the log mutation of a timestamp.
func (t *transformer) begin(ts int64, rows, width int) error {
	var stream *topology.StreamID
	var err error
	if t.plan.tablets {
		stream, err = t.streams.TabletStream(t.plan.base.StoreID, t.plan.log.ID, t.base.Token, ts, t.now)
	} else {
		stream, err = t.streams.VnodeStream(t.base.Token, ts, t.now)
	}
	if err != nil {
		return err
	}
	width += 3 + len(t.keys) + len(t.plan.clustering)
	t.rec = newRecord(t.plan, t.source, stream, t.keys, ts, rows, width)
	if ttl := t.plan.cdc.TTLSeconds; ttl > 0 {
		t.rec.ttl = int32(ttl)
		t.rec.expiry = t.now.Unix() + ttl
	}
	return nil
}

// group logs the changes of one timestamp.
func (t *transformer) group(g *group) error {
	n, width := len(g.statics)+len(g.rows)+2*len(g.ranges), 0
	if g.partition {
		n++
	}
	for _, rows := range [][]store.Row{g.statics, g.rows} {
		for i := range rows {
			width = max(width, len(rows[i].Columns))
		}
	}
	if err := t.begin(g.ts, n, width); err != nil {
		return err
	}
	for i := range g.statics {
		if err := t.upsert(&g.statics[i], true); err != nil {
			return err
		}
	}
	for i := range g.rows {
		row := &g.rows[i]
		if upserts(row) {
			if err := t.upsert(row, false); err != nil {
				return err
			}
		}
		if row.Deleted.Set {
			t.deleteRow(row)
		}
	}
	for i := range g.ranges {
		t.deleteRange(&g.ranges[i])
	}
	if g.partition {
		t.rec.add(OpPartitionDelete)
	}
	if m := t.rec.finish(); m != nil {
		t.out = append(t.out, m)
	}
	return nil
}
