package engine

import (
	"cmp"
	"slices"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine/expr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// projection writes rows if only columns are selected. It walks the columns of a stored
// row once, in the order in which they are stored.
type projection struct {
	out     []projected
	regular []slot // by column ID
	static  []slot
	slots   int
}

// projected is one result column: a part of the key, or a slot.
type projected struct {
	kind catalog.ColumnKind
	at   int // position in the key, or slot
	typ  *cqltype.Type
}

type slot struct {
	id int32
	at int
}

// newProjection returns nil if anything but columns is selected.
func newProjection(list []expr.Selected) *projection {
	p := &projection{}
	for _, s := range list {
		cs, ok := s.Selector.(expr.ColumnSelector)
		if !ok {
			return nil
		}
		c := cs.Col
		o := projected{kind: c.Kind, at: c.Position, typ: c.Type}
		if c.Kind >= catalog.Static {
			o.at = p.slots
			p.slots++
			if c.Kind == catalog.Static {
				p.static = append(p.static, slot{c.ID, o.at})
			} else {
				p.regular = append(p.regular, slot{c.ID, o.at})
			}
		}
		p.out = append(p.out, o)
	}
	byID := func(a, b slot) int { return cmp.Compare(a.id, b.id) }
	slices.SortFunc(p.regular, byID)
	slices.SortFunc(p.static, byID)
	return p
}

// fill points the slots at the columns of r, nil where r has none.
func fill(slots []slot, r *store.Row, data []*store.ColumnData) {
	j := 0
	for _, s := range slots {
		data[s.at] = nil
		if r == nil {
			continue
		}
		for j < len(r.Columns) && r.Columns[j].ID < s.id {
			j++
		}
		if j < len(r.Columns) && r.Columns[j].ID == s.id {
			data[s.at] = &r.Columns[j]
		}
	}
}

// appendRow appends the row's values; data has a place for every slot, with static
// columns already filled.
func (p *projection) appendRow(dst []byte, v *expr.RowView, data []*store.ColumnData) []byte {
	fill(p.regular, v.Row, data)
	for i := range p.out {
		o := &p.out[i]
		switch o.kind {
		case catalog.PartitionKey:
			dst = cqltype.AppendElement(dst, v.Partition[o.at])
		case catalog.Clustering:
			var b []byte
			if o.at < len(v.Clustering) {
				b = v.Clustering[o.at]
			}
			dst = cqltype.AppendElement(dst, b)
		default:
			dst = expr.AppendData(dst, o.typ, data[o.at])
		}
	}
	return dst
}
