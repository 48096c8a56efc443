package cdc

import (
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// upsert logs an inserted or updated row.
func (t *transformer) upsert(row *store.Row, static bool) error {
	op := OpUpdate
	var ttl int32
	if live(row.Marker) {
		op, ttl = OpInsert, cellTTL(row.Marker)
	}
	t.rec.add(op)
	if !static {
		t.rec.setClustering(row.Clustering)
	}
	for i := range row.Columns {
		d := &row.Columns[i]
		col := t.plan.column(d.ID)
		if col == nil {
			continue
		}
		var err error
		if d.Cell != nil {
			err = t.atomic(col, d.Cell)
			if !d.Cell.Dead {
				ttl = d.Cell.TTL
			}
		} else {
			err = t.multiCell(col, d, &ttl)
		}
		if err != nil {
			return err
		}
	}
	t.rec.setTTL(ttl)
	return nil
}

// atomic logs a value of one cell.
func (t *transformer) atomic(col *columnPlan, cell *store.Cell) error {
	if t.plan.cdc.DeltaKeys {
		return nil
	}
	id, value := col.value, cell.Value
	if cell.Dead {
		id, value = col.deleted, trueValue
	}
	if id == missing {
		return t.plan.errMissing(col.column.Name)
	}
	t.rec.set(id, value)
	return nil
}

// multiCell logs a partial change or a replacement of a collection.
func (t *transformer) multiCell(col *columnPlan, d *store.ColumnData, ttl *int32) error {
	elems := d.Elements
	var gone [][]byte
	live := 0
	for i := range elems {
		if elems[i].Dead {
			gone = append(gone, elems[i].Path)
		} else {
			live++
			*ttl = elems[i].TTL
		}
	}
	if t.plan.cdc.DeltaKeys {
		return nil
	}
	if col.value == missing || col.deleted == missing || col.elements == missing {
		return t.plan.errMissing(col.column.Name)
	}
	if d.Deleted.Set {
		t.rec.set(col.deleted, trueValue)
	}
	if gone != nil {
		t.rec.set(col.elements, cqltype.BuildCollection(gone...))
	}
	if live > 0 {
		t.rec.set(col.value, frozenValue(col.column.Type, elems, live))
	}
	return nil
}

// frozenValue serialises the live elements of elems, n of them, as the log's type.
func frozenValue(typ *cqltype.Type, elems []store.Element, n int) []byte {
	keys, values := make([][]byte, 0, n), make([][]byte, 0, n)
	for i := range elems {
		if !elems[i].Dead {
			keys, values = append(keys, elems[i].Path), append(values, elems[i].Value)
		}
	}
	if typ.Kind == cqltype.Set {
		return cqltype.BuildCollection(keys...)
	}
	return cqltype.BuildMap(keys, values)
}

func (t *transformer) deleteRow(row *store.Row) {
	t.rec.add(OpRowDelete)
	t.rec.setClustering(row.Clustering)
}

// deleteRange logs a range deletion by a row for each of its ends. An open end has an
// inclusive operation and no columns.
func (t *transformer) deleteRange(r *store.RangeDeletion) {
	start, end := OpRangeStartExcl, OpRangeEndExcl
	if r.Start.Inclusive {
		start = OpRangeStartIncl
	}
	if r.End.Inclusive {
		end = OpRangeEndIncl
	}
	t.rec.add(start)
	t.rec.setClustering(r.Start.Prefix)
	t.rec.add(end)
	t.rec.setClustering(r.End.Prefix)
}
