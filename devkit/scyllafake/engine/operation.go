package engine

import (
	"encoding/hex"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine/expr"
)

// operation changes one column of a row.
type operation struct {
	column *catalog.Column
	apply  func(w *rowWriter, x *expr.EvalCtx) error
}

// withValue returns an operation on a column with the value of v, nothing if that is unset.
func withValue(c *catalog.Column, v expr.Term, apply func(w *rowWriter, x *expr.EvalCtx, value []byte)) operation {
	return operation{c, func(w *rowWriter, x *expr.EvalCtx) error {
		value, err := v.Eval(x)
		if err == nil && !value.Unset {
			apply(w, x, value.Bytes)
		}
		return err
	}}
}

// evalKey returns the key of one element.
func evalKey(x *expr.EvalCtx, key expr.Term) ([]byte, error) {
	k, err := key.Eval(x)
	if err == nil && k.Bytes == nil {
		return nil, cqlerr.Invalidf("Invalid null map key")
	}
	return k.Bytes, err
}

// assignment compiles an element of SET, or a value of INSERT.
func (p *planner) assignment(m *modifyPlan, c *catalog.Column, a cql.Assignment) error {
	op, err := p.assign(c, a)
	if err == nil {
		m.add(op)
	}
	return err
}

func (p *planner) assign(c *catalog.Column, a cql.Assignment) (operation, error) {
	switch a.Kind {
	case cql.AssignSet:
		v, err := p.Term(a.Value, p.ColumnSpec(c), c)
		return withValue(c, v, func(w *rowWriter, x *expr.EvalCtx, value []byte) {
			if !c.Type.IsMultiCell() {
				w.setCell(c.ID, value)
				return
			}
			// The existing value is deleted just before the new elements are written.
			cells := w.cells(c)
			cells.delete(w.at.ts - 1)
			cells.addAll(x, c.Type, value)
		}), err
	case cql.AssignElem:
		return p.assignElement(c, a)
	}
	text := assignmentText(a)
	switch {
	case !c.Type.IsCollection():
		return operation{}, cqlerr.Invalidf("Invalid operation (%s) for non counter column %s", text, hex.EncodeToString([]byte(c.Name)))
	case c.Type.Frozen:
		return operation{}, cqlerr.Invalidf("Invalid operation (%s) for frozen collection column %s", text, c.Name)
	case a.Kind == cql.AssignRemove && c.Type.Kind == cqltype.List:
		return operation{}, cqlerr.Unsupported("the removal of elements of a list by their value")
	}
	spec := p.ColumnSpec(c)
	if a.Kind == cql.AssignRemove && c.Type.Kind == cqltype.Map {
		spec.Type = cqltype.NewSet(c.Type.Key)
	}
	v, err := p.Term(a.Value, spec, nil)
	return withValue(c, v, func(w *rowWriter, x *expr.EvalCtx, value []byte) {
		switch {
		case value == nil:
		case a.Kind == cql.AssignRemove:
			cells := w.cells(c)
			for k := range cqltype.Elements(value) {
				cells.put(k, nil)
			}
		default:
			w.cells(c).addAll(x, c.Type, value)
		}
	}), err
}

func assignmentText(a cql.Assignment) string {
	v := expr.TermText(a.Value)
	if a.Kind == cql.AssignRemove {
		return a.Column + " = " + a.Column + " - " + v
	}
	return a.Column + " = " + a.Column + " + " + v
}

func (p *planner) assignElement(c *catalog.Column, a cql.Assignment) (operation, error) {
	text := c.Name + "[" + expr.TermText(a.Elem) + "] = " + expr.TermText(a.Value)
	switch {
	case !c.Type.IsCollection():
		return operation{}, cqlerr.Invalidf("Invalid operation (%s) for non collection column %s", text, c.Name)
	case c.Type.Frozen:
		return operation{}, cqlerr.Invalidf("Invalid operation (%s) for frozen collection column %s", text, c.Name)
	case c.Type.Kind == cqltype.Set:
		return operation{}, cqlerr.Invalidf("Invalid operation (%s) for set column %s", text, c.Name)
	case c.Type.Kind == cqltype.List:
		return operation{}, errListIndex
	}
	k, err := p.elementTerm(c, a.Elem)
	if err != nil {
		return operation{}, err
	}
	v, err := p.Term(a.Value, p.Spec("value("+c.Name+")", c.Type.Elem), nil)
	return operation{c, func(w *rowWriter, x *expr.EvalCtx) error {
		key, err := evalKey(x, k)
		if err != nil {
			return err
		}
		value, err := v.Eval(x)
		if err == nil && !value.Unset {
			w.cells(c).put(key, value.Bytes)
		}
		return err
	}}, err
}

var errListIndex = cqlerr.Unsupported("elements of a list by their index")

// elementTerm compiles the term between the brackets of c[…].
func (p *planner) elementTerm(c *catalog.Column, t cql.Term) (expr.Term, error) {
	if c.Type.Kind == cqltype.Set {
		return p.Term(t, p.Spec("value("+c.Name+")", c.Type.Elem), nil)
	}
	return p.Term(t, p.Spec("key("+c.Name+")", c.Type.Key), nil)
}

// removal compiles an element of a DELETE's column list.
func (p *planner) removal(c *catalog.Column, t cql.DeleteTarget) (operation, error) {
	switch {
	case t.Elem == nil:
		return operation{c, func(w *rowWriter, _ *expr.EvalCtx) error {
			if c.Type.IsMultiCell() {
				w.cells(c).delete(w.at.ts)
			} else {
				w.setCell(c.ID, nil)
			}
			return nil
		}}, nil
	case !c.Type.IsCollection():
		return operation{}, cqlerr.Invalidf("Invalid deletion operation for non collection column %s", c.Name)
	case c.Type.Frozen:
		return operation{}, cqlerr.Invalidf("Invalid deletion operation for frozen collection column %s", c.Name)
	case c.Type.Kind == cqltype.List:
		return operation{}, errListIndex
	}
	k, err := p.elementTerm(c, t.Elem)
	return operation{c, func(w *rowWriter, x *expr.EvalCtx) error {
		key, err := evalKey(x, k)
		if err == nil {
			w.cells(c).put(key, nil)
		}
		return err
	}}, err
}
