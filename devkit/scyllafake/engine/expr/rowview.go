package expr

import (
	"encoding/binary"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// RowView is a row for selectors, filters and conditions: the values of its keys, the
// static row and the row itself. static, row and clustering are nil where they do not
// exist.
type RowView struct {
	Table      *catalog.Table
	Key        []byte
	Token      int64
	Partition  [][]byte
	Clustering [][]byte
	Static     *store.Row
	Row        *store.Row
	Now        int64 // Unix seconds, for TTL
}

// StartPartition moves to a partition.
func (v *RowView) StartPartition(key []byte, token int64, static *store.Row) error {
	v.Key, v.Token, v.Static = key, token, static
	v.Row, v.Clustering = nil, nil
	var err error
	v.Partition, err = v.Table.DecodeKey(key, v.Partition)
	return err
}

// SetRow makes r the row of the view; nil is none.
func (v *RowView) SetRow(r *store.Row) {
	v.Row = r
	v.Clustering = nil
	if r != nil {
		v.Clustering = r.Clustering
	}
}

// data returns the stored content of a static or regular column, or nil.
func (v *RowView) data(c *catalog.Column) *store.ColumnData {
	r := v.Row
	if c.Kind == catalog.Static {
		r = v.Static
	}
	if r == nil {
		return nil
	}
	return r.Column(c.ID)
}

// Value returns the serialised value of a column, nil if it has none.
func (v *RowView) Value(c *catalog.Column) []byte {
	switch c.Kind {
	case catalog.PartitionKey:
		if c.Position < len(v.Partition) {
			return v.Partition[c.Position]
		}
		return nil
	case catalog.Clustering:
		if c.Position < len(v.Clustering) {
			return v.Clustering[c.Position]
		}
		return nil
	}
	if b := appendData(nil, c.Type, v.data(c)); b[0]&0x80 == 0 {
		return b[4:]
	}
	return nil
}

// appendElements serialises the cells of a collection as one value.
func appendElements(dst []byte, t *cqltype.Type, elems []store.Element) []byte {
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

// AppendColumn appends a column as a [bytes] of a result row.
func (v *RowView) AppendColumn(dst []byte, c *catalog.Column) []byte {
	if c.Kind >= catalog.Static {
		return appendData(dst, c.Type, v.data(c))
	}
	return cqltype.AppendElement(dst, v.Value(c))
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
