package cdc

import (
	"cmp"
	"slices"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// change is a normalised mutation, or a part of one.
type change struct {
	static  *store.Row
	rows    []store.Row
	ranges  []store.RangeDeletion
	deleted store.Deletion
}

// upserts reports whether the row writes anything, so that it is more than a row
// deletion.
func upserts(r *store.Row) bool { return live(r.Marker) || len(r.Columns) > 0 }

func live(c *store.Cell) bool { return c != nil && !c.Dead }

// shownAt returns the time of a collection's tombstone in the log: the statement that
// replaces a collection at T writes it with T-1, so that the new elements survive.
func shownAt(d store.Deletion) int64 { return d.Timestamp + 1 }

// cellTTL returns the TTL for splitting and for cdc$ttl.
func cellTTL(c *store.Cell) int32 {
	if c.Dead {
		return 0
	}
	return c.TTL
}

// splitter decides whether a mutation fits one change: all of one timestamp, one TTL
// and, roughly, one kind (ScyllaDB cdc/split.cc should_split_visitor). The order of its
// visits, that of the partition, matters: a row deletion after an upsert splits, one
// before it does not.
type splitter struct {
	ts               int64
	ttl              int32
	hasTS, hasTTL    bool
	hadMarker        bool
	hadUpsert        bool
	split            bool
	hadRow, hadRange bool
}

func (s *splitter) visit(ts int64, ttl int32) {
	if s.hasTS && s.ts != ts || s.hasTTL && s.ttl != ttl {
		s.split = true
		return
	}
	s.ts, s.ttl, s.hasTS, s.hasTTL = ts, ttl, true, true
}

func (s *splitter) cells(row *store.Row) {
	for i := range row.Columns {
		d := &row.Columns[i]
		if d.Cell != nil {
			s.visit(d.Cell.Timestamp, cellTTL(d.Cell))
			continue
		}
		if d.Deleted.Set {
			s.visit(shownAt(d.Deleted), 0)
		}
		for j := range d.Elements {
			e := &d.Elements[j]
			// An INSERT cannot change single elements.
			if s.hadMarker && !e.Dead {
				s.split = true
			}
			s.visit(e.Timestamp, cellTTL(&e.Cell))
		}
	}
}

// needsSplit reports whether c must be split, and otherwise its timestamp; ok is false
// when it changes nothing.
func needsSplit(c *change) (ts int64, split, ok bool) {
	var s splitter
	if c.static != nil {
		s.cells(c.static)
	}
	for i := range c.rows {
		row := &c.rows[i]
		if upserts(row) {
			s.split = s.split || c.static != nil
			s.hadRow, s.hadUpsert = true, true
			if live(row.Marker) {
				s.hadMarker = true
				s.visit(row.Marker.Timestamp, cellTTL(row.Marker))
			}
			s.cells(row)
		}
		if row.Deleted.Set {
			s.split = s.split || c.static != nil || s.hadUpsert
			s.hadRow = true
			s.visit(row.Deleted.Timestamp, 0)
		}
	}
	for i := range c.ranges {
		s.split = s.split || c.static != nil || s.hadRow
		s.hadRange = true
		s.visit(c.ranges[i].Timestamp, 0)
	}
	if c.deleted.Set {
		s.split = s.split || c.static != nil || s.hadRow || s.hadRange
		if !s.hasTS {
			s.ts, s.hasTS = c.deleted.Timestamp, true
		}
	}
	return s.ts, s.split, s.hasTS
}

// group is the changes of one timestamp, in the order of the log.
type group struct {
	ts            int64
	statics, rows []store.Row
	ranges        []store.RangeDeletion
	partition     bool

	updates, deletes []store.Row // come after the inserts in rows
}

// grouping collects groups by timestamp.
type grouping []*group

func (g *grouping) at(ts int64) *group {
	for _, o := range *g {
		if o.ts == ts {
			return o
		}
	}
	o := &group{ts: ts}
	*g = append(*g, o)
	return o
}

// splitChange divides c into groups, in the order of time, and each of them
// into rows of one TTL (ScyllaDB cdc/split.cc extract_changes).
func splitChange(c *change) []*group {
	var all grouping
	if c.static != nil {
		for _, p := range divideRow(c.static) {
			g := all.at(p.ts)
			g.statics = append(g.statics, p.row)
		}
	}
	for i := range c.rows {
		row := &c.rows[i]
		for _, p := range divideRow(row) {
			g := all.at(p.ts)
			if !live(row.Marker) || p.ts != row.Marker.Timestamp || p.ttl != cellTTL(row.Marker) {
				g.updates = append(g.updates, p.row)
				continue
			}
			insert, update := divideInsert(p.row)
			insert.Marker = row.Marker
			g.rows = append(g.rows, insert)
			if len(update.Columns) > 0 {
				g.updates = append(g.updates, update)
			}
		}
		if row.Deleted.Set {
			g := all.at(row.Deleted.Timestamp)
			g.deletes = append(g.deletes, store.Row{Clustering: row.Clustering, Deleted: row.Deleted})
		}
	}
	for _, r := range c.ranges {
		g := all.at(r.Timestamp)
		g.ranges = append(g.ranges, r)
	}
	if c.deleted.Set {
		g := all.at(c.deleted.Timestamp)
		g.partition = true
	}
	for _, g := range all {
		g.rows = slices.Concat(g.rows, g.updates, g.deletes)
	}
	slices.SortFunc(all, func(a, b *group) int { return cmp.Compare(a.ts, b.ts) })
	return all
}

// part contains the cells that a row writes with one timestamp and TTL.
type part struct {
	ts  int64
	ttl int32
	row store.Row
}

// divideRow divides the cells of a row by timestamp and TTL, in that order. The
// marker has a part even if no cell shares it.
func divideRow(row *store.Row) []*part {
	var parts []*part
	at := func(ts int64, ttl int32) *part {
		for _, p := range parts {
			if p.ts == ts && p.ttl == ttl {
				return p
			}
		}
		p := &part{ts: ts, ttl: ttl, row: store.Row{Clustering: row.Clustering}}
		parts = append(parts, p)
		return p
	}
	if live(row.Marker) {
		at(row.Marker.Timestamp, cellTTL(row.Marker))
	}
	for i := range row.Columns {
		d := &row.Columns[i]
		if d.Cell != nil {
			p := at(d.Cell.Timestamp, cellTTL(d.Cell))
			p.row.Columns = append(p.row.Columns, store.ColumnData{ID: d.ID, Cell: d.Cell})
			continue
		}
		if d.Deleted.Set {
			at(shownAt(d.Deleted), 0).column(d.ID).Deleted = d.Deleted
		}
		for _, e := range d.Elements {
			c := at(e.Timestamp, cellTTL(&e.Cell)).column(d.ID)
			c.Elements = append(c.Elements, e)
		}
	}
	slices.SortFunc(parts, func(a, b *part) int {
		return cmp.Or(cmp.Compare(a.ts, b.ts), cmp.Compare(a.ttl, b.ttl))
	})
	return parts
}

// column returns the part's data of a multi-cell column. Columns come in order, so it
// can only be the last.
func (p *part) column(id int32) *store.ColumnData {
	cols := p.row.Columns
	if n := len(cols); n == 0 || cols[n-1].ID != id {
		p.row.Columns = append(cols, store.ColumnData{ID: id})
	}
	return &p.row.Columns[len(p.row.Columns)-1]
}

// divideInsert separates the part of an inserted row that an INSERT cannot do: changes
// of collection elements without replacing the collection.
func divideInsert(row store.Row) (insert, update store.Row) {
	insert.Clustering, update.Clustering = row.Clustering, row.Clustering
	for _, d := range row.Columns {
		if d.Cell == nil && !d.Deleted.Set {
			update.Columns = append(update.Columns, d)
		} else {
			insert.Columns = append(insert.Columns, d)
		}
	}
	return insert, update
}
