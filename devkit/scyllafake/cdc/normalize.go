package cdc

import (
	"slices"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// sortedRows returns the rows of a mutation in clustering order, one for each key:
// changes of the same row are merged, cell by cell. The mutation is not changed.
func sortedRows(t *catalog.Table, rows []store.Row) []store.Row {
	if len(rows) < 2 {
		return rows
	}
	byKey := func(a, b store.Row) int { return catalog.CompareClustering(t.Clustering, a.Clustering, b.Clustering) }
	if !slices.IsSortedFunc(rows, byKey) {
		rows = slices.Clone(rows)
		slices.SortStableFunc(rows, byKey)
	}
	for i := 1; i < len(rows); i++ {
		if byKey(rows[i-1], rows[i]) == 0 {
			return mergedRows(t, rows)
		}
	}
	return rows
}

func mergedRows(t *catalog.Table, rows []store.Row) []store.Row {
	out := make([]store.Row, 0, len(rows))
	for _, r := range rows {
		if n := len(out); n > 0 && catalog.CompareClustering(t.Clustering, out[n-1].Clustering, r.Clustering) == 0 {
			out[n-1] = mergeRow(out[n-1], r)
		} else {
			out = append(out, r)
		}
	}
	return out
}

// mergeRow joins two changes of one row. A tombstone of the row does not remove cells
// here: the log shows both.
func mergeRow(a, b store.Row) store.Row {
	out := store.Row{Clustering: a.Clustering, Marker: newer(a.Marker, b.Marker), Deleted: laterDeletion(a.Deleted, b.Deleted)}
	out.Columns = make([]store.ColumnData, 0, len(a.Columns)+len(b.Columns))
	x, y := a.Columns, b.Columns
	for len(x) > 0 || len(y) > 0 {
		switch {
		case len(y) == 0 || len(x) > 0 && x[0].ID < y[0].ID:
			out.Columns, x = append(out.Columns, x[0]), x[1:]
		case len(x) == 0 || y[0].ID < x[0].ID:
			out.Columns, y = append(out.Columns, y[0]), y[1:]
		default:
			out.Columns = append(out.Columns, mergeColumn(x[0], y[0]))
			x, y = x[1:], y[1:]
		}
	}
	return out
}

func mergeColumn(a, b store.ColumnData) store.ColumnData {
	return store.ColumnData{
		ID:       a.ID,
		Cell:     newer(a.Cell, b.Cell),
		Deleted:  laterDeletion(a.Deleted, b.Deleted),
		Elements: slices.Concat(a.Elements, b.Elements),
	}
}

func laterDeletion(a, b store.Deletion) store.Deletion {
	if !a.Set || b.Set && b.Timestamp > a.Timestamp {
		return b
	}
	return a
}

// newer returns the surviving version of a cell: the later, and at the same time a
// deletion, then one with a TTL, then the one that expires later, then the greater
// value (ScyllaDB atomic_cell.cc).
func newer(a, b *store.Cell) *store.Cell {
	if a == nil || b != nil && b.Beats(a) {
		return b
	}
	return a
}

// cleanElements normalises the cells of the multi-cell columns of rows; see
// sortedElements. It returns rows itself when there is nothing to do.
func (p *plan) cleanElements(rows []store.Row) []store.Row {
	cloned := false
	for i := range rows {
		own := false
		for j := range rows[i].Columns {
			d := &rows[i].Columns[j]
			col := p.column(d.ID)
			if len(d.Elements) == 0 || col == nil {
				continue
			}
			elems, changed := sortedElements(col.column, d)
			if !changed {
				continue
			}
			if !cloned {
				rows, cloned = slices.Clone(rows), true
			}
			if !own {
				rows[i].Columns, own = slices.Clone(rows[i].Columns), true
			}
			rows[i].Columns[j].Elements = elems
		}
	}
	return rows
}

// sortedElements returns the cells of a multi-cell column in the order of their keys,
// one for each. It omits cells that the column's own tombstone covers.
func sortedElements(c *catalog.Column, d *store.ColumnData) (elems []store.Element, changed bool) {
	elems = d.Elements
	key := elementKey(c.Type)
	byKey := func(a, b store.Element) int { return key.Compare(a.Path, b.Path) }
	covered := func(e store.Element) bool { return d.Deleted.Set && e.Timestamp <= d.Deleted.Timestamp }
	clean := !covered(elems[0])
	for i := 1; i < len(elems) && clean; i++ {
		clean = byKey(elems[i-1], elems[i]) < 0 && !covered(elems[i])
	}
	if clean {
		return elems, false
	}
	elems = slices.DeleteFunc(slices.Clone(elems), covered)
	slices.SortStableFunc(elems, byKey)
	out := elems[:0]
	for _, e := range elems {
		if n := len(out); n > 0 && byKey(out[n-1], e) == 0 {
			if e.Beats(&out[n-1].Cell) {
				out[n-1] = e
			}
		} else {
			out = append(out, e)
		}
	}
	return out, true
}
