package store

import (
	"slices"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// columnInfo describes a column for reading.
type columnInfo struct {
	live bool
	// path is the type that orders the column's elements, nil if they are ordered by
	// their bytes.
	path *cqltype.Type
}

// columnInfos is indexed by column ID. Columns without an entry, or not live, have been
// dropped: rows may still contain them, but reads do not return them.
func columnInfos(t *catalog.Table) []columnInfo {
	out := make([]columnInfo, t.NextColumnID)
	for id, c := range t.ByID {
		for int(id) >= len(out) {
			out = append(out, columnInfo{})
		}
		out[id] = columnInfo{live: true, path: pathType(c.Type)}
	}
	return out
}

var timeuuidType = &cqltype.Type{Kind: cqltype.TimeUUID}

func pathType(t *cqltype.Type) *cqltype.Type {
	switch t.Kind {
	case cqltype.List:
		return timeuuidType
	case cqltype.Set:
		return unlessBytewise(t.Elem)
	case cqltype.Map:
		return unlessBytewise(t.Key)
	}
	return nil
}

func unlessBytewise(t *cqltype.Type) *cqltype.Type {
	switch t.Kind {
	case cqltype.ASCII, cqltype.Varchar, cqltype.Blob, cqltype.Date, cqltype.Inet:
		return nil
	}
	return t
}

// decoder decodes records into rows that refer to the records' bytes. Its buffers serve
// one row at a time.
type decoder struct {
	columns []columnInfo
	now     int64

	row      Row
	marker   Cell
	cells    []Cell
	elements []Element
}

// live decodes the live parts of a record under the deletion shadow and reports whether
// there are any. The row is d.row until the next call.
func (d *decoder) live(record []byte, shadow int64) (alive bool, err error) {
	r := reader{b: record}
	h := r.rowHeader()
	shadow = max(shadow, h.deleted.ts)
	row := &d.row
	row.Marker = nil
	if h.flags&rowMarker != 0 && h.marker.visible(shadow, d.now) {
		d.marker = h.marker
		row.Marker = &d.marker
	}
	row.Clustering = row.Clustering[:0]
	for n := r.count(); n > 0; n-- {
		row.Clustering = append(row.Clustering, r.value())
	}
	n := r.count()
	d.cells = slices.Grow(d.cells[:0], n)[:n]
	used := 0
	d.elements = d.elements[:0]
	row.Columns = row.Columns[:0]
	var id int32
	for ; n > 0 && !r.bad; n-- {
		id += int32(r.varint())
		flags := r.byte()
		if flags&cellComplex != 0 {
			d.collection(&r, id, flags, &h.base, shadow)
			continue
		}
		c := &d.cells[used]
		r.fullCell(c, flags, &h.base)
		if c.visible(shadow, d.now) && d.known(id) {
			row.Columns = append(row.Columns, ColumnData{ID: id, Cell: c})
			used++
		}
	}
	if r.bad {
		return false, errCorrupt
	}
	return row.Marker != nil || len(row.Columns) > 0, nil
}

func (d *decoder) collection(r *reader, id int32, flags byte, b *base, shadow int64) {
	if flags&cellDeleted != 0 {
		shadow = max(shadow, r.tomb(b.ts).ts)
	}
	first := len(d.elements)
	for n := r.count(); n > 0 && !r.bad; n-- {
		e := Element{Path: r.bytes()}
		r.fullCell(&e.Cell, r.byte(), b)
		if e.visible(shadow, d.now) {
			d.elements = append(d.elements, e)
		}
	}
	els := d.elements[first:len(d.elements):len(d.elements)]
	if len(els) == 0 || !d.known(id) {
		return
	}
	if t := d.columns[id].path; t != nil {
		for _, e := range els { // Compare requires it, and the record may be damaged
			if t.Validate(e.Path) != nil {
				r.bad = true
				return
			}
		}
		slices.SortFunc(els, func(a, b Element) int { return t.Compare(a.Path, b.Path) })
	}
	d.row.Columns = append(d.row.Columns, ColumnData{ID: id, Elements: els})
}

func (d *decoder) known(id int32) bool {
	return id >= 0 && int(id) < len(d.columns) && d.columns[id].live
}
