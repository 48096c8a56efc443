package engine

import (
	"bytes"
	"slices"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine/expr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// stamp contains the common attributes of the cells of one statement.
type stamp struct {
	ts     int64 // microseconds
	ttl    int32 // seconds, 0 for none
	expiry int64 // Unix seconds
}

func (s stamp) cell(value []byte) store.Cell {
	if value == nil {
		return store.Cell{Timestamp: s.ts, Dead: true}
	}
	return store.Cell{Timestamp: s.ts, TTL: s.ttl, Expiry: s.expiry, Value: value}
}

// builder collects the changes of one request: one mutation per partition, whatever the
// number of statements.
type builder struct {
	e *Engine
	// ballot means that the request's timestamp is that of a decided round, which
	// overrides USING TIMESTAMP of a statement.
	ballot bool
	muts   []*mutationBuilder
	byKey  map[partitionID]*mutationBuilder
}

// partitionID names a partition of a table.
type partitionID struct {
	table uint32 // StoreID
	key   string
}

// partition returns the mutation of a partition, a new one if necessary.
func (b *builder) partition(t *catalog.Table, key []byte) *mutationBuilder {
	id := partitionID{t.StoreID, string(key)}
	m := b.byKey[id]
	if m == nil {
		if b.byKey == nil {
			b.byKey = map[partitionID]*mutationBuilder{}
		}
		m = &mutationBuilder{mut: store.Mutation{Table: t, Key: key, Token: t.Token(key)}}
		b.muts, b.byKey[id] = append(b.muts, m), m
	}
	return m
}

// finish returns the mutations with changes, each in its normal form.
func (b *builder) finish() []*store.Mutation {
	out := make([]*store.Mutation, 0, len(b.muts))
	for _, m := range b.muts {
		if m.finish() {
			out = append(out, &m.mut)
		}
	}
	return out
}

// mutationBuilder collects the changes of one partition.
type mutationBuilder struct {
	mut   store.Mutation
	index map[string]int // of rows by clustering
}

func (m *mutationBuilder) deletePartition(ts int64) {
	m.mut.Deleted = later(m.mut.Deleted, ts)
}

func (m *mutationBuilder) deleteRange(r store.Range, ts int64) {
	m.mut.Ranges = append(m.mut.Ranges, store.RangeDeletion{Range: r, Deletion: store.Deletion{Set: true, Timestamp: ts}})
}

func (m *mutationBuilder) static() *store.Row {
	if m.mut.Static == nil {
		m.mut.Static = &store.Row{}
	}
	return m.mut.Static
}

// row returns the row of a clustering key. It is valid until the next call.
func (m *mutationBuilder) row(clustering [][]byte) *store.Row {
	name := string(catalog.CompositeKey(clustering))
	i, ok := m.index[name]
	if !ok {
		if m.index == nil {
			m.index = map[string]int{}
		}
		i = len(m.mut.Rows)
		m.index[name] = i
		m.mut.Rows = append(m.mut.Rows, store.Row{Clustering: clustering})
	}
	return &m.mut.Rows[i]
}

// finish sorts rows into clustering order, joins deletions and drops the elements that the
// tombstone of their column covers; it reports whether the mutation is not empty.
func (m *mutationBuilder) finish() bool {
	cols := m.mut.Table.Clustering
	m.mut.Rows = slices.DeleteFunc(m.mut.Rows, emptyRow)
	for i := range m.mut.Rows {
		dropCovered(&m.mut.Rows[i])
	}
	if len(m.mut.Rows) > 1 {
		slices.SortFunc(m.mut.Rows, func(a, b store.Row) int { return catalog.CompareClustering(cols, a.Clustering, b.Clustering) })
	}
	if len(m.mut.Ranges) > 1 {
		m.mut.Ranges = store.JoinRanges(m.mut.Table, m.mut.Ranges)
	}
	if m.mut.Static != nil && emptyRow(*m.mut.Static) {
		m.mut.Static = nil
	}
	if m.mut.Static != nil {
		dropCovered(m.mut.Static)
	}
	return m.mut.Deleted.Set || m.mut.Static != nil || len(m.mut.Rows) > 0 || len(m.mut.Ranges) > 0
}

func dropCovered(r *store.Row) {
	for i := range r.Columns {
		if d := &r.Columns[i]; d.Deleted.Set {
			d.Elements = slices.DeleteFunc(d.Elements, func(e store.Element) bool { return e.Timestamp <= d.Deleted.Timestamp })
		}
	}
}

func emptyRow(r store.Row) bool { return r.Marker == nil && !r.Deleted.Set && len(r.Columns) == 0 }

// later returns the deletion that covers both d and ts.
func later(d store.Deletion, ts int64) store.Deletion {
	if d.Set && d.Timestamp >= ts {
		return d
	}
	return store.Deletion{Set: true, Timestamp: ts}
}

// rowWriter writes the operations of one statement into one row.
type rowWriter struct {
	row *store.Row
	at  stamp
}

// mark writes the row marker of an INSERT.
func (w *rowWriter) mark() {
	c := store.Cell{Timestamp: w.at.ts, TTL: w.at.ttl, Expiry: w.at.expiry}
	if w.row.Marker == nil || c.Beats(w.row.Marker) {
		w.row.Marker = &c
	}
}

// data finds or adds a column of the row, keeping columns by ID.
func (w *rowWriter) data(id int32) *store.ColumnData {
	cols := w.row.Columns
	i := len(cols)
	for i > 0 && cols[i-1].ID >= id {
		i--
	}
	if i == len(cols) || cols[i].ID != id {
		w.row.Columns = slices.Insert(cols, i, store.ColumnData{ID: id})
	}
	return &w.row.Columns[i]
}

// setCell sets an atomic column; nil deletes it.
func (w *rowWriter) setCell(id int32, value []byte) {
	c := w.at.cell(value)
	d := w.data(id)
	if d.Cell == nil || c.Beats(d.Cell) {
		d.Cell = &c
	}
}

// cellsWriter writes elements of a collection.
type cellsWriter struct {
	d    *store.ColumnData
	at   stamp
	path func(a, b []byte) int // order of paths
}

func (w *rowWriter) cells(c *catalog.Column) cellsWriter {
	out := cellsWriter{d: w.data(c.ID), at: w.at, path: bytes.Compare}
	switch c.Type.Kind {
	case cqltype.List:
		out.path = cqltype.TTimeUUID.Compare
	case cqltype.Set:
		out.path = c.Type.Elem.Compare
	case cqltype.Map:
		out.path = c.Type.Key.Compare
	}
	return out
}

func (c cellsWriter) delete(ts int64) { c.d.Deleted = later(c.d.Deleted, ts) }

// put writes one element; nil deletes it.
func (c cellsWriter) put(path, value []byte) {
	e := store.Element{Path: path, Cell: c.at.cell(value)}
	i, found := len(c.d.Elements), false
	if i > 0 && c.path(c.d.Elements[i-1].Path, path) >= 0 {
		i, found = slices.BinarySearchFunc(c.d.Elements, path, func(e store.Element, path []byte) int { return c.path(e.Path, path) })
	}
	if !found {
		c.d.Elements = slices.Insert(c.d.Elements, i, e)
	} else if e.Beats(&c.d.Elements[i].Cell) {
		c.d.Elements[i] = e
	}
}

// addAll writes all elements of a serialised collection.
func (c cellsWriter) addAll(x *expr.EvalCtx, t *cqltype.Type, v []byte) {
	switch t.Kind {
	case cqltype.Set:
		for e := range cqltype.Elements(v) {
			c.put(e, []byte{})
		}
	case cqltype.Map:
		for k, e := range cqltype.Pairs(v) {
			c.put(k, e)
		}
	case cqltype.List:
		paths := x.Clock.AppendKeys(cqltype.Count(v))
		i := 0
		for e := range cqltype.Elements(v) {
			c.put(paths[i][:], e)
			i++
		}
	}
}
