package engine

import (
	"encoding/hex"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine/expr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// operation changes one column of a row.
type operation interface {
	column() *catalog.Column
	// needsRead reports whether apply needs the current row.
	needsRead() bool
	apply(w *rowWriter, x *expr.EvalCtx) error
}

// onColumn is the common part of operations.
type onColumn struct{ col *catalog.Column }

func (o onColumn) column() *catalog.Column { return o.col }
func (o onColumn) needsRead() bool         { return false }

// assignment compiles an element of SET, or a value of INSERT.
func (p *planner) assignment(m *modifyPlan, c *catalog.Column, a cql.Assignment) error {
	op, err := p.assign(c, a)
	if err == nil {
		m.add(op)
	}
	return err
}

func (p *planner) assign(c *catalog.Column, a cql.Assignment) (operation, error) {
	on := onColumn{c}
	switch a.Kind {
	case cql.AssignSet:
		v, err := p.Term(a.Value, p.ColumnSpec(c), c)
		if err != nil {
			return nil, err
		}
		if c.Type.IsMultiCell() {
			return setCells{on, v}, nil
		}
		return setValue{on, v}, nil
	case cql.AssignElem:
		return p.assignElement(c, a)
	}
	text := assignmentText(a)
	switch {
	case !c.Type.IsCollection() && a.Kind == cql.AssignPrepend:
		return nil, cqlerr.Invalidf("Invalid operation (%s) for non list column %s", text, c.Name)
	case !c.Type.IsCollection():
		return nil, cqlerr.Invalidf("Invalid operation (%s) for non counter column %s", text, hex.EncodeToString([]byte(c.Name)))
	case c.Type.Frozen:
		return nil, cqlerr.Invalidf("Invalid operation (%s) for frozen collection column %s", text, c.Name)
	case a.Kind == cql.AssignPrepend && c.Type.Kind != cqltype.List:
		return nil, cqlerr.Invalidf("Invalid operation (%s) for non list column %s", text, c.Name)
	}
	spec := p.ColumnSpec(c)
	if a.Kind == cql.AssignRemove && c.Type.Kind == cqltype.Map {
		spec.Type = cqltype.NewSet(c.Type.Key)
	}
	v, err := p.Term(a.Value, spec, nil)
	if err != nil {
		return nil, err
	}
	switch {
	case a.Kind == cql.AssignRemove && c.Type.Kind == cqltype.List:
		return removeValues{on, v}, nil
	case a.Kind == cql.AssignRemove:
		return removeKeys{on, v}, nil
	}
	return addCells{on, v, a.Kind == cql.AssignPrepend}, nil
}

func assignmentText(a cql.Assignment) string {
	v := expr.TermText(a.Value)
	switch a.Kind {
	case cql.AssignPrepend:
		return a.Column + " = " + v + " - " + a.Column
	case cql.AssignRemove:
		return a.Column + " = " + a.Column + " - " + v
	}
	return a.Column + " = " + a.Column + " + " + v
}

func (p *planner) assignElement(c *catalog.Column, a cql.Assignment) (operation, error) {
	text := c.Name + "[" + expr.TermText(a.Elem) + "] = " + expr.TermText(a.Value)
	switch {
	case !c.Type.IsCollection():
		return nil, cqlerr.Invalidf("Invalid operation (%s) for non collection column %s", text, c.Name)
	case c.Type.Frozen:
		return nil, cqlerr.Invalidf("Invalid operation (%s) for frozen collection column %s", text, c.Name)
	case c.Type.Kind == cqltype.Set:
		return nil, cqlerr.Invalidf("Invalid operation (%s) for set column %s", text, c.Name)
	}
	k, err := p.elementTerm(c, a.Elem)
	if err != nil {
		return nil, err
	}
	v, err := p.Term(a.Value, p.Spec("value("+c.Name+")", c.Type.Elem), nil)
	if err != nil {
		return nil, err
	}
	if c.Type.Kind == cqltype.List {
		return setIndex{onColumn{c}, k, v}, nil
	}
	return setKey{onColumn{c}, k, v}, nil
}

// elementTerm compiles the term between the brackets of c[…].
func (p *planner) elementTerm(c *catalog.Column, t cql.Term) (expr.Term, error) {
	switch c.Type.Kind {
	case cqltype.List:
		return p.Term(t, p.Spec("idx("+c.Name+")", cqltype.TInt), nil)
	case cqltype.Set:
		return p.Term(t, p.Spec("value("+c.Name+")", c.Type.Elem), nil)
	}
	return p.Term(t, p.Spec("key("+c.Name+")", c.Type.Key), nil)
}

// removal compiles an element of a DELETE's column list.
func (p *planner) removal(c *catalog.Column, t cql.DeleteTarget) (operation, error) {
	switch {
	case t.Elem == nil:
		return dropColumn{onColumn{c}}, nil
	case !c.Type.IsCollection():
		return nil, cqlerr.Invalidf("Invalid deletion operation for non collection column %s", c.Name)
	case c.Type.Frozen:
		return nil, cqlerr.Invalidf("Invalid deletion operation for frozen collection column %s", c.Name)
	}
	k, err := p.elementTerm(c, t.Elem)
	if err != nil {
		return nil, err
	}
	if c.Type.Kind == cqltype.List {
		return setIndex{onColumn{c}, k, expr.Null}, nil
	}
	return dropKey{onColumn{c}, k}, nil
}

// setValue sets an atomic column.
type setValue struct {
	onColumn
	value expr.Term
}

func (o setValue) apply(w *rowWriter, x *expr.EvalCtx) error {
	v, err := o.value.Eval(x)
	if err != nil || v.Unset {
		return err
	}
	w.setCell(o.col.ID, v.Bytes)
	return nil
}

// dropColumn deletes a column.
type dropColumn struct{ onColumn }

func (o dropColumn) apply(w *rowWriter, _ *expr.EvalCtx) error {
	if o.col.Type.IsMultiCell() {
		w.cells(o.col).delete(w.at.ts)
		return nil
	}
	w.setCell(o.col.ID, nil)
	return nil
}

// setCells sets a collection as a whole: it deletes the existing value just
// before it writes the new elements.
type setCells struct {
	onColumn
	value expr.Term
}

func (o setCells) apply(w *rowWriter, x *expr.EvalCtx) error {
	v, err := o.value.Eval(x)
	if err != nil || v.Unset {
		return err
	}
	c := w.cells(o.col)
	c.delete(w.at.ts - 1)
	c.addAll(x, o.col.Type, v.Bytes, false)
	return nil
}

// addCells adds to a collection.
type addCells struct {
	onColumn
	value   expr.Term
	prepend bool
}

func (o addCells) apply(w *rowWriter, x *expr.EvalCtx) error {
	v, err := o.value.Eval(x)
	if err != nil || v.Unset || v.Bytes == nil {
		return err
	}
	w.cells(o.col).addAll(x, o.col.Type, v.Bytes, o.prepend)
	return nil
}

// removeKeys removes elements from a set, or keys from a map.
type removeKeys struct {
	onColumn
	value expr.Term
}

func (o removeKeys) apply(w *rowWriter, x *expr.EvalCtx) error {
	v, err := o.value.Eval(x)
	if err != nil || v.Unset || v.Bytes == nil {
		return err
	}
	c := w.cells(o.col)
	for k := range cqltype.Elements(v.Bytes) {
		c.put(k, nil)
	}
	return nil
}

// dropKey deletes one element of a set or map.
type dropKey struct {
	onColumn
	key expr.Term
}

func (o dropKey) apply(w *rowWriter, x *expr.EvalCtx) error {
	k, err := o.key.Eval(x)
	switch {
	case err != nil:
		return err
	case k.Unset || k.Bytes == nil:
		return cqlerr.Invalidf("Invalid null map key")
	}
	w.cells(o.col).put(k.Bytes, nil)
	return nil
}

// setKey sets one entry of a map; null deletes it.
type setKey struct {
	onColumn
	key, value expr.Term
}

func (o setKey) apply(w *rowWriter, x *expr.EvalCtx) error {
	k, err := o.key.Eval(x)
	switch {
	case err != nil:
		return err
	case k.Unset:
		return cqlerr.Invalidf("Invalid unset map key")
	case k.Bytes == nil:
		return cqlerr.Invalidf("Invalid null map key")
	}
	v, err := o.value.Eval(x)
	if err != nil || v.Unset {
		return err
	}
	w.cells(o.col).put(k.Bytes, v.Bytes)
	return nil
}

// setIndex sets the element of a list at an index; null deletes it.
type setIndex struct {
	onColumn
	index, value expr.Term
}

func (o setIndex) needsRead() bool { return true }

func (o setIndex) apply(w *rowWriter, x *expr.EvalCtx) error {
	i, err := o.index.Eval(x)
	switch {
	case err != nil:
		return err
	case i.Unset:
		return cqlerr.Invalidf("Invalid unset value for list index")
	case i.Bytes == nil:
		return cqlerr.Invalidf("Invalid null value for list index")
	}
	v, err := o.value.Eval(x)
	if err != nil || v.Unset {
		return err
	}
	n, _ := cqltype.TInt.DecodeInt(i.Bytes)
	list := w.before(o.col)
	if len(list) == 0 {
		if c, ok := o.value.(expr.Constant); ok && c.Bytes == nil {
			return cqlerr.Invalidf("Attempted to delete an element from a list which is null")
		}
		return cqlerr.Invalidf("Attempted to set an element on a list which is null")
	}
	if n < 0 || n >= int64(len(list)) {
		return cqlerr.Invalidf("List index %d out of bound, list has size %d", n, len(list))
	}
	w.cells(o.col).put(list[n].Path, v.Bytes)
	return nil
}

// removeValues removes from a list all elements of the given values.
type removeValues struct {
	onColumn
	value expr.Term
}

func (o removeValues) needsRead() bool { return true }

func (o removeValues) apply(w *rowWriter, x *expr.EvalCtx) error {
	v, err := o.value.Eval(x)
	if err != nil || v.Unset || v.Bytes == nil {
		return err
	}
	for _, e := range w.before(o.col) {
		for gone := range cqltype.Elements(v.Bytes) {
			if o.col.Type.Elem.Compare(gone, e.Value) == 0 {
				w.cells(o.col).put(e.Path, nil)
				break
			}
		}
	}
	return nil
}

// before returns the elements of the list before the statement.
func (w *rowWriter) before(c *catalog.Column) []store.Element {
	if w.old == nil {
		return nil
	}
	d := w.old.Column(c.ID)
	if d == nil {
		return nil
	}
	return d.Elements
}
