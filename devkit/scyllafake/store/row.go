package store

import (
	"bytes"
	"slices"
)

// Deletion is a tombstone: it deletes everything with a timestamp at or below
// Timestamp. The zero value (Timestamp 0 and Set false) deletes nothing.
type Deletion struct {
	Set       bool
	Timestamp int64 // microseconds
}

// Cell is one atomic value.
type Cell struct {
	Timestamp int64 // microseconds
	// TTL in seconds, 0 for none; Expiry is the Unix second at which a cell with a TTL
	// expires.
	TTL    int32
	Expiry int64
	Dead   bool   // a cell tombstone; Value is nil
	Value  []byte // never nil when live
}

// Element is one cell of a non-frozen collection. Path is the set
// element, the map key, or the list's timeuuid.
type Element struct {
	Path []byte
	Cell
}

// ColumnData is the content of one column in one row, or its change in one mutation.
type ColumnData struct {
	ID   int32
	Cell *Cell // atomic columns
	// Complex columns (Type.IsMultiCell): Deleted is the collection tombstone, Elements
	// are its cells. A read returns them in the order of their paths' type; a mutation
	// may have them in any order.
	Deleted  Deletion
	Elements []Element
}

// Row is one row, as a mutation changes it or as a read found it. A row from a read
// contains live data only: Deleted and the columns' Deleted are unset.
type Row struct {
	// Clustering contains the serialised clustering values; it is ignored for the
	// static row.
	Clustering [][]byte
	// Marker is the row marker that INSERT writes; nil if there is none.
	// Its Value is unused.
	Marker  *Cell
	Deleted Deletion
	Columns []ColumnData // by column ID
}

// Column finds the data of a column; nil if the row has none.
func (r *Row) Column(id int32) *ColumnData {
	i, ok := slices.BinarySearchFunc(r.Columns, id, func(c ColumnData, id int32) int { return int(c.ID) - int(id) })
	if !ok {
		return nil
	}
	return &r.Columns[i]
}

// Clone returns a copy that shares no memory with r, for a row that outlives its
// iterator. The clone of nil is nil.
func (r *Row) Clone() *Row {
	if r == nil {
		return nil
	}
	c := &Row{Deleted: r.Deleted, Marker: r.Marker.clone()}
	if r.Clustering != nil {
		c.Clustering = make([][]byte, len(r.Clustering))
		for i, v := range r.Clustering {
			c.Clustering[i] = bytes.Clone(v)
		}
	}
	if r.Columns != nil {
		c.Columns = make([]ColumnData, len(r.Columns))
		for i, d := range r.Columns {
			c.Columns[i] = d.clone()
		}
	}
	return c
}

func (d ColumnData) clone() ColumnData {
	d.Cell = d.Cell.clone()
	d.Elements = slices.Clone(d.Elements)
	for i := range d.Elements {
		e := &d.Elements[i]
		e.Path, e.Value = bytes.Clone(e.Path), bytes.Clone(e.Value)
	}
	return d
}

func (c *Cell) clone() *Cell {
	if c == nil {
		return nil
	}
	d := *c
	d.Value = bytes.Clone(c.Value)
	return &d
}
