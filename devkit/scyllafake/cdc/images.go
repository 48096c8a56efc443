package cdc

import (
	"bytes"
	"maps"
	"slices"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// images contains the rows of a mutation before it and, while tracking, after each part
// of it. A row that does not exist has no state.
type images struct {
	static   *rowState
	touched  bool // the static row has been written
	rows     map[string]*rowState
	tracking bool
}

// rowState contains the frozen values of a row by base column ID; nil and absent both
// mean null.
type rowState struct {
	clustering [][]byte
	columns    map[int32][]byte
}

// touch returns the state of a row for a write to change, and creates it if needed; nil
// when it is not used later.
func (im *images) touch(row *store.Row) *rowState {
	if !im.tracking {
		return nil
	}
	name := string(catalog.CompositeKey(row.Clustering))
	s := im.rows[name]
	if s == nil {
		s = &rowState{clustering: row.Clustering, columns: map[int32][]byte{}}
		im.rows[name] = s
	}
	return s
}

func (im *images) touchStatic() *rowState {
	im.touched = true
	if !im.tracking {
		return nil
	}
	return im.static
}

func (im *images) forget(clustering [][]byte) {
	if im.tracking {
		delete(im.rows, string(catalog.CompositeKey(clustering)))
	}
}

func (im *images) forgetRange(t *catalog.Table, r *store.RangeDeletion) {
	if !im.tracking {
		return
	}
	maps.DeleteFunc(im.rows, func(_ string, s *rowState) bool { return r.Covers(t, s.clustering) })
}

func (im *images) forgetAll() {
	if im.tracking {
		clear(im.rows)
	}
}

// loadImages reads the rows that c touches. As in ScyllaDB (cdc/log.cc
// pre_image_select) it reads the columns of the first row only, so that with preimage
// 'true' other columns of later rows appear null. It reads all columns for a full
// preimage, for a postimage, and when a row is deleted, or, with partition, the one row of
// a partition.
func loadImages(p *plan, base *store.Mutation, c *change, rows *store.Store, partition bool) (*images, error) {
	im := &images{static: &rowState{columns: map[int32][]byte{}}, rows: map[string]*rowState{}}
	if c.static == nil && len(c.rows) == 0 && !partition {
		return im, nil
	}
	scan := store.Scan{Table: p.base, Key: base.Key, Token: base.Token}
	if len(p.base.Clustering) > 0 && len(c.rows) > 0 {
		for i := range c.rows {
			b := store.Bound{Prefix: c.rows[i].Clustering, Inclusive: true}
			scan.Ranges = append(scan.Ranges, store.Range{Start: b, End: b})
		}
	}
	it, err := rows.Scan(scan)
	if err != nil {
		return nil, err
	}
	defer it.Close()
	if !it.NextPartition() {
		return im, it.Err()
	}
	all := p.cdc.Postimage || p.cdc.Preimage == catalog.ImageFull
	if c.static != nil {
		wanted := columnSet(c.static)
		if all {
			wanted = nil
		}
		im.static.load(p, it.Static(), wanted)
	}
	if len(c.rows) > 0 || partition {
		var wanted map[int32]bool
		if !partition {
			wanted = columnSet(&c.rows[0])
		}
		if all || slices.ContainsFunc(c.rows, func(r store.Row) bool { return r.Deleted.Set }) {
			wanted = nil
		}
		for it.NextRow() {
			row := it.Row()
			s := &rowState{columns: map[int32][]byte{}}
			for _, v := range row.Clustering {
				s.clustering = append(s.clustering, bytes.Clone(v))
			}
			s.load(p, row, wanted)
			im.rows[string(catalog.CompositeKey(s.clustering))] = s
		}
	}
	return im, it.Err()
}

// load takes over the wanted columns of a stored row; nil wants all.
func (s *rowState) load(p *plan, row *store.Row, wanted map[int32]bool) {
	if row == nil {
		return
	}
	for i := range row.Columns {
		d := &row.Columns[i]
		col := p.column(d.ID)
		if col == nil || wanted != nil && !wanted[d.ID] {
			continue
		}
		if d.Cell != nil {
			s.columns[d.ID] = bytes.Clone(d.Cell.Value)
		} else if len(d.Elements) > 0 {
			s.columns[d.ID] = frozenValue(col.column.Type, d.Elements, len(d.Elements))
		}
	}
}

// columnSet returns the columns that a row writes.
func columnSet(row *store.Row) map[int32]bool {
	set := make(map[int32]bool, len(row.Columns))
	for i := range row.Columns {
		set[row.Columns[i].ID] = true
	}
	return set
}

// affected is a row that a group touches; nil columns are all of them.
type affected struct {
	row     *store.Row
	columns map[int32]bool
}

// affectedRows returns the rows of the group, in clustering order, with the columns that it
// touches. There is at most one static row.
func (g *group) affectedRows(t *catalog.Table) (statics, rows []affected) {
	if len(g.statics) > 0 {
		a := affected{columns: map[int32]bool{}}
		for i := range g.statics {
			maps.Copy(a.columns, columnSet(&g.statics[i]))
		}
		statics = []affected{a}
	}
	at := map[string]int{}
	for i := range g.rows {
		row := &g.rows[i]
		name := string(catalog.CompositeKey(row.Clustering))
		j, ok := at[name]
		if !ok {
			j, at[name] = len(rows), len(rows)
			rows = append(rows, affected{row: row, columns: map[int32]bool{}})
		}
		if row.Deleted.Set {
			rows[j].columns = nil
		}
		if rows[j].columns != nil {
			maps.Copy(rows[j].columns, columnSet(row))
		}
	}
	slices.SortFunc(rows, func(a, b affected) int {
		return catalog.CompareClustering(t.Clustering, a.row.Clustering, b.row.Clustering)
	})
	return statics, rows
}

// preimage adds a row with the previous content of a row (nil: the static row), if it
// existed: the given columns, or all if the table requires the full one or columns is
// nil. cdc$deleted distinguishes a null from an omitted column.
func (t *transformer) preimage(row *store.Row, columns map[int32]bool) {
	if t.plan.cdc.Preimage == catalog.ImageFull {
		columns = nil
	}
	t.image(OpPreImage, row, columns)
}

// postimage adds a row with the current content of a row, if it exists.
func (t *transformer) postimage(row *store.Row) { t.image(OpPostImage, row, nil) }

func (t *transformer) image(op Operation, row *store.Row, columns map[int32]bool) {
	cols := t.plan.base.Regulars
	var state *rowState
	if row == nil {
		cols, state = t.plan.base.Statics, t.images.static
		if len(state.columns) == 0 && !t.images.touched {
			return
		}
	} else if state = t.images.rows[string(catalog.CompositeKey(row.Clustering))]; state == nil {
		return
	}
	t.rec.add(op)
	if row != nil {
		t.rec.setClustering(row.Clustering)
	}
	for _, c := range cols {
		if columns != nil && !columns[c.ID] {
			continue
		}
		if v := state.columns[c.ID]; v != nil {
			t.rec.set(t.plan.columns[c.ID].value, v)
		} else if op == OpPreImage {
			t.rec.set(t.plan.columns[c.ID].deleted, trueValue)
		}
	}
}

// patchFrozen returns a frozen value after some elements were set, by the frozen value set
// (nil: none), and others, named in gone, were removed.
func patchFrozen(typ *cqltype.Type, before, set []byte, gone [][]byte) []byte {
	var keys, values [][]byte
	put := func(k, v []byte) {
		if !slices.ContainsFunc(gone, func(path []byte) bool { return bytes.Equal(path, k) }) {
			keys, values = append(keys, k), append(values, v)
		}
	}
	for _, value := range [][]byte{set, before} { // of an element that both have the first counts
		if typ.Kind == cqltype.Set {
			for e := range cqltype.Elements(value) {
				put(e, nil)
			}
			continue
		}
		for k, v := range cqltype.Pairs(value) {
			put(k, v)
		}
	}
	if typ.Kind == cqltype.Set {
		return cqltype.Normalize(typ, cqltype.BuildCollection(keys...))
	}
	return cqltype.Normalize(logType(typ), cqltype.BuildMap(keys, values))
}
