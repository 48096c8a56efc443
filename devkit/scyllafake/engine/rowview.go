package engine

import (
	"encoding/binary"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// rowView is a row for selectors, filters and conditions: the values of its keys, the
// static row and the row itself. static, row and clustering are nil where they do not
// exist.
type rowView struct {
	table      *catalog.Table
	key        []byte
	token      int64
	partition  [][]byte
	clustering [][]byte
	static     *store.Row
	row        *store.Row
	now        int64 // Unix seconds, for TTL
}

// startPartition moves to a partition.
func (v *rowView) startPartition(key []byte, token int64, static *store.Row) error {
	v.key, v.token, v.static = key, token, static
	v.row, v.clustering = nil, nil
	var err error
	v.partition, err = v.table.DecodeKey(key, v.partition)
	return err
}

func (v *rowView) setRow(r *store.Row) {
	v.row = r
	v.clustering = nil
	if r != nil {
		v.clustering = r.Clustering
	}
}

// data returns the stored content of a static or regular column, or nil.
func (v *rowView) data(c *catalog.Column) *store.ColumnData {
	r := v.row
	if c.Kind == catalog.Static {
		r = v.static
	}
	if r == nil {
		return nil
	}
	return r.Column(c.ID)
}

// value returns the serialised value of a column, nil if it has none.
func (v *rowView) value(c *catalog.Column) []byte {
	switch c.Kind {
	case catalog.PartitionKey:
		if c.Position < len(v.partition) {
			return v.partition[c.Position]
		}
		return nil
	case catalog.Clustering:
		if c.Position < len(v.clustering) {
			return v.clustering[c.Position]
		}
		return nil
	}
	return columnValue(c.Type, v.data(c))
}

// columnValue serialises the stored content of a column.
func columnValue(t *cqltype.Type, d *store.ColumnData) []byte {
	switch {
	case d == nil:
		return nil
	case !t.IsMultiCell():
		if d.Cell == nil {
			return nil
		}
		return d.Cell.Value
	case len(d.Elements) == 0:
		return nil
	}
	return appendElements(nil, t, d.Elements)
}

// appendElements serialises the cells of a collection or UDT as one value.
func appendElements(dst []byte, t *cqltype.Type, elems []store.Element) []byte {
	if t.Kind == cqltype.UDT {
		n := 0
		for i := range t.Fields {
			var v []byte
			if n < len(elems) && fieldIndex(elems[n].Path) == i {
				v = elems[n].Value
				n++
			}
			dst = cqltype.AppendElement(dst, v)
		}
		return dst
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(elems)))
	for i := range elems {
		if t.Kind != cqltype.List {
			dst = cqltype.AppendElement(dst, elems[i].Path)
		}
		if t.Kind != cqltype.Set {
			dst = cqltype.AppendElement(dst, elems[i].Value)
		}
	}
	return dst
}

func fieldIndex(path []byte) int {
	if len(path) != 2 {
		return -1
	}
	return int(binary.BigEndian.Uint16(path))
}

// appendColumn appends a column as a [bytes] of a result row.
func (v *rowView) appendColumn(dst []byte, c *catalog.Column) []byte {
	if c.Kind >= catalog.Static {
		return appendData(dst, c.Type, v.data(c))
	}
	return cqltype.AppendElement(dst, v.value(c))
}

// appendData appends the stored content of a column as a [bytes] of a result row.
func appendData(dst []byte, t *cqltype.Type, d *store.ColumnData) []byte {
	switch {
	case d == nil:
		return cqltype.AppendElement(dst, nil)
	case d.Cell != nil:
		return cqltype.AppendElement(dst, d.Cell.Value)
	case len(d.Elements) == 0:
		return cqltype.AppendElement(dst, nil)
	}
	at := len(dst)
	dst = appendElements(append(dst, 0, 0, 0, 0), t, d.Elements)
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}
