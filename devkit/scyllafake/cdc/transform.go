package cdc

import (
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/topology"
)

// transformer makes the log rows of one mutation.
type transformer struct {
	plan    *plan
	streams Streams
	base    *store.Mutation
	source  *source
	now     time.Time
	out     []*store.Mutation
	version catalog.Version

	keys   [][]byte
	keyBuf [4][]byte
	rec    record
	images *images // nil when the table requires none
}

// run appends the log mutations of the base mutation to out: one for each
// timestamp.
func (t *transformer) run(rows Rows) error {
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
	if t.plan.images() {
		if t.images, err = loadImages(t.plan, t.base, &c, rows, t.hasPartitionImage(&c)); err != nil {
			return err
		}
	}
	if !split {
		return t.whole(&c, ts)
	}
	groups := splitChange(&c)
	for i, g := range groups {
		if err := t.group(g, i == len(groups)-1); err != nil {
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

// hasPartitionImage reports whether a change deletes the one row of a partition, which
// newer releases log with its preimage.
func (t *transformer) hasPartitionImage(c *change) bool {
	return t.version.HasPartitionImage() && t.plan.cdc.Preimage != catalog.ImageOff && c.deleted.Set && len(c.rows) == 0 && len(t.plan.base.Clustering) == 0
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

func (t *transformer) end() {
	if m := t.rec.finish(); m != nil {
		t.out = append(t.out, m)
	}
}

// whole logs a change that needs no splitting.
func (t *transformer) whole(c *change, ts int64) error {
	cdc := t.plan.cdc
	n, width := len(c.rows)+2*len(c.ranges)+1, 0
	if c.static == nil && !c.deleted.Set {
		n--
	}
	for i := range c.rows {
		width = max(width, len(c.rows[i].Columns))
	}
	if c.static != nil {
		width = max(width, len(c.static.Columns))
	}
	if t.images != nil {
		n, width = 3*n, max(width, len(t.plan.base.Regulars), len(t.plan.base.Statics))
		t.images.tracking = cdc.Postimage
	}
	if err := t.begin(ts, n, width); err != nil {
		return err
	}
	if cdc.Preimage != catalog.ImageOff {
		if c.static != nil {
			t.preimage(nil, columnSet(c.static))
		}
		for i := range c.rows {
			touched := columnSet(&c.rows[i])
			if c.rows[i].Deleted.Set {
				touched = nil
			}
			t.preimage(&c.rows[i], touched)
		}
		if t.hasPartitionImage(c) {
			t.preimage(&store.Row{}, nil)
		}
	}
	if c.static != nil {
		if err := t.upsert(c.static, true); err != nil {
			return err
		}
	}
	for i := range c.rows {
		row := &c.rows[i]
		if upserts(row) {
			if err := t.upsert(row, false); err != nil {
				return err
			}
		}
		if row.Deleted.Set {
			t.deleteRow(row)
		}
	}
	for i := range c.ranges {
		t.deleteRange(&c.ranges[i])
	}
	if c.deleted.Set {
		t.deletePartition()
	}
	if cdc.Postimage {
		if c.static != nil {
			t.postimage(nil)
		}
		for i := range c.rows {
			t.postimage(&c.rows[i])
		}
	}
	t.end()
	return nil
}

// group logs the changes of one timestamp of a split mutation.
func (t *transformer) group(g *group, last bool) error {
	cdc := t.plan.cdc
	var statics, rows []affected
	n := len(g.statics) + len(g.inserts) + len(g.updates) + len(g.deletes) + 2*len(g.ranges) + 1
	width := 4
	if t.images != nil {
		// The images of later groups must contain the changes of this one.
		t.images.tracking = cdc.Postimage || !last
		statics, rows = g.affected(t.plan.base)
		n += 2 * (len(statics) + len(rows))
		width = max(len(t.plan.base.Regulars), len(t.plan.base.Statics))
	}
	if err := t.begin(g.ts, n, width); err != nil {
		return err
	}
	if cdc.Preimage != catalog.ImageOff {
		for _, a := range statics {
			t.preimage(nil, a.columns)
		}
		for _, a := range rows {
			t.preimage(a.row, a.columns)
		}
	}
	for i := range g.statics {
		if err := t.upsert(&g.statics[i], true); err != nil {
			return err
		}
	}
	for _, kind := range [][]store.Row{g.inserts, g.updates} {
		for i := range kind {
			if err := t.upsert(&kind[i], false); err != nil {
				return err
			}
		}
	}
	for i := range g.deletes {
		t.deleteRow(&g.deletes[i])
	}
	for i := range g.ranges {
		t.deleteRange(&g.ranges[i])
	}
	if g.partition {
		t.deletePartition()
	}
	if cdc.Postimage {
		for range statics {
			t.postimage(nil)
		}
		for _, a := range rows {
			t.postimage(a.row)
		}
	}
	t.end()
	return nil
}
