package expr

import (
	"slices"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// Relation is a compiled relation of a WHERE clause on columns of one table.
type Relation struct {
	Op    cql.Op
	Cols  []*catalog.Column
	multi bool
	// Values are the values of the columns, or with IN the values of one column.
	Values []Term
	list   Term // of "IN ?"
	Text   *cql.Relation
}

// evaluate evaluates the values; skip means that one was unset.
func (r *Relation) evaluate(x *EvalCtx) (vals [][]byte, skip bool, err error) {
	vals = make([][]byte, len(r.Values))
	for i, t := range r.Values {
		v, err := t.Eval(x)
		if err != nil || v.Unset {
			return nil, v.Unset, err
		}
		vals[i] = v.Bytes
	}
	return vals, false, nil
}

// members evaluates the right side of = or IN. A null in = gives none; in IN it is refused.
// skip means that a value was unset.
func (r *Relation) members(x *EvalCtx) (vals [][]byte, skip bool, err error) {
	if r.list == nil {
		vals, skip, err = r.evaluate(x)
		switch {
		case err != nil || skip && r.Op != cql.OpIn:
			return nil, skip, err
		case skip:
			return nil, false, errUnsetElement
		case !slices.ContainsFunc(vals, isNull):
			return vals, false, nil
		case r.Op == cql.OpIn:
			return nil, false, errNullElement
		}
		return nil, false, x.nullKey()
	}
	v, err := r.list.Eval(x)
	switch {
	case err != nil:
		return nil, false, err
	case v.Unset:
		return nil, false, cqlerr.Invalidf("Invalid unset value for column %s", r.Cols[0].Name)
	case v.Bytes == nil:
		return nil, false, cqlerr.Invalidf("Invalid null value for column %s", r.Cols[0].Name)
	}
	return slices.Collect(cqltype.Elements(v.Bytes)), false, nil
}

// nullKey returns the error for a null where a key column needs a value, or nil if
// nulls match nothing.
func (x *EvalCtx) nullKey() error {
	if x.StrictKeys {
		return ErrNullKey
	}
	return nil
}

func isNull(b []byte) bool { return b == nil }

// relation compiles one relation that is not on a token. find finds a column or returns
// an error.
func (p *Compiler) relation(r *cql.Relation, find func(string) (*catalog.Column, error)) (*Relation, error) {
	out := &Relation{Op: r.Op, multi: r.Multi, Text: r}
	for _, name := range r.Columns {
		c, err := find(name)
		if err != nil {
			return nil, err
		}
		out.Cols = append(out.Cols, c)
	}
	if r.Op == cql.OpNE {
		return nil, cqlerr.Invalidf("Unsupported \"!=\" relation: %s", relationText(r))
	}
	if r.Multi {
		return out, p.multiRelation(out, r)
	}
	col := out.Cols[0]
	spec := p.ColumnSpec(col)
	if col.Type.IsMultiCell() && r.Op != cql.OpEQ {
		return nil, cqlerr.Invalidf("Collection column '%s' (%s) cannot be restricted by a '%s' relation", col.Name, col.Type, OpTexts[r.Op])
	}
	if col.Type.IsMultiCell() {
		return nil, cqlerr.Invalidf("Collection column '%s' (%s) cannot be restricted by a '=' relation", col.Name, col.Type)
	}
	if err := CheckOrder(r.Op, col.Type); err != nil {
		return nil, err
	}
	if r.Op != cql.OpIn {
		t, err := p.Term(r.Value, spec, col)
		out.Values = []Term{t}
		return out, err
	}
	spec.Name = "in(" + col.Name + ")"
	if r.Value != nil {
		spec.Type = cqltype.NewList(col.Type)
		var err error
		out.list, err = p.Term(r.Value, spec, nil)
		return out, err
	}
	spec.Name = "value(" + spec.Name + ")"
	for _, m := range r.In {
		t, err := p.Term(m, spec, nil)
		if err != nil {
			return nil, err
		}
		out.Values = append(out.Values, t)
	}
	return out, nil
}

// multiRelation compiles the right side of (a, b) op …. All columns must be
// clustering columns in their order.
func (p *Compiler) multiRelation(out *Relation, r *cql.Relation) error {
	for i, c := range out.Cols {
		if c.Kind != catalog.Clustering {
			return cqlerr.Invalidf("Multi-column relations can only be applied to clustering columns but was applied to: %s", c.Name)
		}
		if c.Desc != out.Cols[0].Desc {
			return cqlerr.Unsupported("a range over columns of different orders")
		}
		if c.Position != i {
			return cqlerr.Invalidf("Clustering columns may not be skipped in multi-column relations. They should appear in the PRIMARY KEY order. Got %s", relationText(r))
		}
	}
	lit := r.Value.(cql.TupleLit)
	if len(lit.Elems) != len(out.Cols) {
		return cqlerr.Invalidf("Expected %d elements in value tuple, but got %d: %s", len(out.Cols), len(lit.Elems), TermText(lit))
	}
	name := "(" + strings.Join(r.Columns, ",") + ")"
	for i, e := range lit.Elems {
		t, err := p.Term(e, p.Spec(name+"["+itoa(i)+"]", out.Cols[i].Type.Freeze()), nil)
		if err != nil {
			return err
		}
		out.Values = append(out.Values, t)
	}
	return nil
}
