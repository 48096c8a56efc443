package store

import (
	"cmp"
	"slices"
)

// delta is the content of one row: a write, or the sum of several. Rows are encoded and
// reconciled in this form.
type delta struct {
	// clustering is the encoded clustering block, never empty.
	clustering []byte
	hasMarker  bool
	marker     Cell
	deleted    tomb
	tombs      []columnTomb // by id
	entries    []entry      // by id and path
	unsorted   bool         // tombs or entries may be out of order or repeated
}

func (d *delta) reset() {
	clear(d.entries) // drops references to values
	*d = delta{deleted: noTomb, tombs: d.tombs[:0], entries: d.entries[:0]}
}

func (d *delta) empty() bool {
	return !d.hasMarker && !d.deleted.set() && len(d.tombs) == 0 && len(d.entries) == 0
}

// setRow makes d the row of a mutation; scratch receives the clustering block and is
// returned for reuse. The delta refers to r's values.
func (d *delta) setRow(r *Row, clustering [][]byte, now int64, scratch []byte) []byte {
	d.reset()
	scratch = appendValues(scratch[:0], clustering)
	d.clustering = scratch
	if r.Marker != nil {
		d.hasMarker, d.marker = true, r.Marker.toStored(now)
		d.marker.Value = nil
	}
	d.deleted = r.Deleted.tomb(now)
	for i := range r.Columns {
		c := &r.Columns[i]
		if c.Cell != nil {
			d.addEntry(entry{id: c.ID, Cell: c.Cell.toStored(now)})
		}
		if c.Deleted.Set {
			d.addTomb(columnTomb{c.ID, c.Deleted.tomb(now)})
		}
		for j := range c.Elements {
			e := &c.Elements[j]
			d.addEntry(entry{id: c.ID, complex: true, path: e.Path, Cell: e.Cell.toStored(now)})
		}
	}
	if d.unsorted {
		d.reconcile()
	}
	return scratch
}

func (d *delta) addEntry(e entry) {
	if n := len(d.entries); n > 0 && compareEntries(d.entries[n-1], e) >= 0 {
		d.unsorted = true
	}
	d.entries = append(d.entries, e)
}

func (d *delta) addTomb(t columnTomb) {
	if n := len(d.tombs); n > 0 && d.tombs[n-1].id >= t.id {
		d.unsorted = true
	}
	d.tombs = append(d.tombs, t)
}

func (d *delta) addMarker(m Cell) {
	if !d.hasMarker || m.Beats(&d.marker) {
		d.hasMarker, d.marker = true, m
	}
}

// reconcile converts the collected changes to their one normal form: sorted, one
// survivor for each cell, and nothing that a tombstone of the row covers.
func (d *delta) reconcile() {
	slices.SortFunc(d.entries, compareEntries)
	slices.SortFunc(d.tombs, func(a, b columnTomb) int { return cmp.Compare(a.id, b.id) })

	tombs := d.tombs[:0]
	for _, t := range d.tombs {
		switch n := len(tombs); {
		case t.ts <= d.deleted.ts:
		case n > 0 && tombs[n-1].id == t.id:
			tombs[n-1].tomb = tombs[n-1].max(t.tomb)
		default:
			tombs = append(tombs, t)
		}
	}
	d.tombs = tombs

	if d.hasMarker && d.marker.Timestamp <= d.deleted.ts {
		d.hasMarker = false
	}
	entries, ti := d.entries[:0], 0
	for _, e := range d.entries {
		shadow := d.deleted.ts
		if e.complex {
			for ti < len(tombs) && tombs[ti].id < e.id {
				ti++
			}
			if ti < len(tombs) && tombs[ti].id == e.id {
				shadow = tombs[ti].ts // above the row's, or it would have been removed
			}
		}
		switch n := len(entries); {
		case e.Timestamp <= shadow:
		case n > 0 && compareEntries(entries[n-1], e) == 0:
			if e.Beats(&entries[n-1].Cell) {
				entries[n-1] = e
			}
		default:
			entries = append(entries, e)
		}
	}
	clear(d.entries[len(entries):])
	d.entries, d.unsorted = entries, false
}
