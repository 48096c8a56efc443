package expr

import (
	"slices"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// Relation is a compiled relation of a WHERE clause on columns of one table. IN sets
// members or list, all others value.
type Relation struct {
	Op      cql.Op
	Cols    []*catalog.Column
	multi   bool
	Value   row
	members []row
	list    Term // of "IN ?": a list of values, or of tuples if multi
	Text    *cql.Relation
}

// row is the right side of a relation: one term per column, or one term that
// is a tuple of them.
type row struct {
	Terms []Term
	tuple Term
	n     int // components of tuple
}

// Eval returns one value per column; an unset one among them makes the whole unset.
func (r row) Eval(x *EvalCtx, dst [][]byte) (vals [][]byte, unset bool, err error) {
	if r.tuple != nil {
		v, err := r.tuple.Eval(x)
		if err != nil || v.Unset {
			return nil, v.Unset, err
		}
		return tupleValues(v.Bytes, r.n, dst), false, nil
	}
	for _, t := range r.Terms {
		v, err := t.Eval(x)
		if err != nil || v.Unset {
			return nil, v.Unset, err
		}
		dst = append(dst, v.Bytes)
	}
	return dst, false, nil
}

// tupleValues returns the n components of a serialised tuple; missing ones are null.
func tupleValues(v []byte, n int, dst [][]byte) [][]byte {
	for i := range n {
		dst = append(dst, cqltype.Component(v, i))
	}
	return dst
}

// tuples evaluates the right side of = or IN to its tuples. A null in = gives none; in
// IN it is refused. skip means that a value was unset.
func (r *Relation) tuples(x *EvalCtx) (out [][][]byte, skip bool, err error) {
	switch {
	case r.Op != cql.OpIn:
		vals, unset, err := r.Value.Eval(x, nil)
		if err != nil || unset {
			return nil, unset, err
		}
		if slices.ContainsFunc(vals, isNull) {
			return nil, false, x.nullKey()
		}
		return [][][]byte{vals}, false, nil
	case r.list != nil:
		v, err := r.list.Eval(x)
		if err != nil {
			return nil, false, err
		}
		if v.Unset {
			return nil, false, cqlerr.Invalidf("Invalid unset value for column %s", r.Cols[0].Name)
		}
		if v.Bytes == nil {
			return nil, false, cqlerr.Invalidf("Invalid null value for column %s", r.Cols[0].Name)
		}
		for e := range cqltype.Elements(v.Bytes) {
			if !r.multi {
				out = append(out, [][]byte{e})
				continue
			}
			vals := tupleValues(e, len(r.Cols), nil)
			if slices.ContainsFunc(vals, isNull) {
				return nil, false, errNullElement
			}
			out = append(out, vals)
		}
		return out, false, nil
	}
	for _, m := range r.members {
		vals, unset, err := m.Eval(x, nil)
		switch {
		case err != nil:
			return nil, false, err
		case unset:
			return nil, false, errUnsetElement
		case slices.ContainsFunc(vals, isNull):
			return nil, false, errNullElement
		}
		out = append(out, vals)
	}
	return out, false, nil
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
	if col.Type.Kind == cqltype.Duration && r.Op != cql.OpEQ && r.Op != cql.OpIn {
		return nil, cqlerr.Invalidf("Slice restriction are not supported on duration columns")
	}
	if r.Op != cql.OpIn {
		t, err := p.Term(r.Value, spec, col)
		out.Value.Terms = []Term{t}
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
		out.members = append(out.members, row{Terms: []Term{t}})
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
		if c.Desc != out.Cols[0].Desc && r.Op != cql.OpEQ && r.Op != cql.OpIn {
			return cqlerr.Unsupported("a range over columns of different orders")
		}
		if c.Position != i {
			return cqlerr.Invalidf("Clustering columns may not be skipped in multi-column relations. They should appear in the PRIMARY KEY order. Got %s", relationText(r))
		}
	}
	fields := make([]*cqltype.Type, len(out.Cols))
	for i, c := range out.Cols {
		fields[i] = c.Type
	}
	typ := cqltype.NewTuple(fields...)
	name := "(" + strings.Join(r.Columns, ",") + ")"
	var err error
	if r.Op != cql.OpIn {
		out.Value, err = p.rowOf(r.Value, name, typ, r)
		return err
	}
	name = "in" + name
	if r.Value != nil {
		out.list, err = p.Term(r.Value, p.Spec(name, cqltype.NewList(typ)), nil)
		return err
	}
	for _, m := range r.In {
		v, err := p.rowOf(m, "value("+name+")", typ, r)
		if err != nil {
			return err
		}
		out.members = append(out.members, v)
	}
	return nil
}

func (p *Compiler) rowOf(t cql.Term, name string, typ *cqltype.Type, r *cql.Relation) (row, error) {
	lit, ok := t.(cql.TupleLit)
	if !ok {
		v, err := p.Term(t, p.Spec(name, typ), nil)
		return row{tuple: v, n: len(typ.Fields)}, err
	}
	if len(lit.Elems) != len(typ.Fields) {
		return row{}, cqlerr.Invalidf("Expected %d elements in value tuple, but got %d: %s", len(typ.Fields), len(lit.Elems), TermText(lit))
	}
	out := row{Terms: make([]Term, len(lit.Elems))}
	for i, e := range lit.Elems {
		var err error
		if out.Terms[i], err = p.Term(e, p.Spec(name+"["+itoa(i)+"]", typ.Fields[i]), nil); err != nil {
			return row{}, err
		}
	}
	return out, nil
}
