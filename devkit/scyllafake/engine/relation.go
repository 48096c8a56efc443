package engine

import (
	"slices"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// relation is a compiled relation of a WHERE clause on columns of one table. IN sets
// members or list, all others value.
type relation struct {
	op      cql.Op
	cols    []*catalog.Column
	multi   bool
	elem    term // of c[elem]
	value   row
	members []row
	list    term // of "IN ?": a list of values, or of tuples if multi
	text    *cql.Relation
}

// row is the right side of a relation: one term per column, or one term that
// is a tuple of them.
type row struct {
	terms []term
	tuple term
	n     int // components of tuple
}

// eval returns one value per column; an unset one among them makes the whole unset.
func (r row) eval(x *evalCtx, dst [][]byte) (vals [][]byte, unset bool, err error) {
	if r.tuple != nil {
		v, err := r.tuple.eval(x)
		if err != nil || v.Unset {
			return nil, v.Unset, err
		}
		return tupleValues(v.Bytes, r.n, dst), false, nil
	}
	for _, t := range r.terms {
		v, err := t.eval(x)
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
func (r *relation) tuples(x *evalCtx) (out [][][]byte, skip bool, err error) {
	switch {
	case r.op != cql.OpIn:
		vals, unset, err := r.value.eval(x, nil)
		if err != nil || unset {
			return nil, unset, err
		}
		if slices.ContainsFunc(vals, isNull) {
			return nil, false, x.nullKey()
		}
		return [][][]byte{vals}, false, nil
	case r.list != nil:
		v, err := r.list.eval(x)
		if err != nil {
			return nil, false, err
		}
		if v.Unset {
			return nil, false, cqlerr.Invalidf("Invalid unset value for column %s", r.cols[0].Name)
		}
		if v.Bytes == nil {
			return nil, false, cqlerr.Invalidf("Invalid null value for column %s", r.cols[0].Name)
		}
		for e := range cqltype.Elements(v.Bytes) {
			if !r.multi {
				out = append(out, [][]byte{e})
				continue
			}
			vals := tupleValues(e, len(r.cols), nil)
			if slices.ContainsFunc(vals, isNull) {
				return nil, false, errNullElement
			}
			out = append(out, vals)
		}
		return out, false, nil
	}
	for _, m := range r.members {
		vals, unset, err := m.eval(x, nil)
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
func (x *evalCtx) nullKey() error {
	if x.strictKeys {
		return errNullKey
	}
	return nil
}

func isNull(b []byte) bool { return b == nil }

// relation compiles one relation that is not on a token. find finds a column or returns
// an error.
func (p *planner) relation(r *cql.Relation, find func(string) (*catalog.Column, error)) (*relation, error) {
	out := &relation{op: r.Op, multi: r.Multi, text: r}
	for _, name := range r.Columns {
		c, err := find(name)
		if err != nil {
			return nil, err
		}
		out.cols = append(out.cols, c)
	}
	switch r.Op {
	case cql.OpNE:
		return nil, cqlerr.Invalidf("Unsupported \"!=\" relation: %s", relationText(r))
	case cql.OpIsNotNull:
		return nil, cqlerr.Invalidf("restriction '%s' is only supported in materialized view creation", relationText(r))
	case cql.OpContains, cql.OpContainsKey:
		return out, p.contains(out, r)
	case cql.OpLike:
		if k := out.cols[0].Type.Kind; k != cqltype.Varchar && k != cqltype.ASCII {
			return nil, cqlerr.Invalidf("LIKE is allowed only on string types, which %s is not", out.cols[0].Name)
		}
	}
	if r.Multi {
		return out, p.multiRelation(out, r)
	}
	col := out.cols[0]
	spec := p.columnSpec(col)
	if r.Field != "" {
		return nil, cqlerr.Unsupported("a relation on a field of a user-defined type")
	}
	if r.Elem != nil {
		return out, p.elementRelation(out, r)
	}
	if col.Type.IsMultiCell() && r.Op != cql.OpEQ {
		return nil, cqlerr.Invalidf("Collection column '%s' (%s) cannot be restricted by a '%s' relation", col.Name, col.Type, opTexts[r.Op])
	}
	if col.Type.IsMultiCell() {
		return nil, cqlerr.Invalidf("Collection column '%s' (%s) cannot be restricted by a '=' relation", col.Name, col.Type)
	}
	if col.Type.Kind == cqltype.Duration && r.Op != cql.OpEQ && r.Op != cql.OpIn {
		return nil, cqlerr.Invalidf("Slice restriction are not supported on duration columns")
	}
	if r.Op != cql.OpIn {
		t, err := p.term(r.Value, spec, col)
		out.value.terms = []term{t}
		return out, err
	}
	spec.Name = "in(" + col.Name + ")"
	if r.Value != nil {
		spec.Type = cqltype.NewList(col.Type)
		var err error
		out.list, err = p.term(r.Value, spec, nil)
		return out, err
	}
	spec.Name = "value(" + spec.Name + ")"
	for _, m := range r.In {
		t, err := p.term(m, spec, nil)
		if err != nil {
			return nil, err
		}
		out.members = append(out.members, row{terms: []term{t}})
	}
	return out, nil
}

func (p *planner) contains(out *relation, r *cql.Relation) error {
	col := out.cols[0]
	spec := p.columnSpec(col)
	switch {
	case !col.Type.IsCollection():
		return cqlerr.Invalidf("Cannot use %s on non-collection column %s", opTexts[r.Op], col.Name)
	case r.Op == cql.OpContainsKey && col.Type.Kind != cqltype.Map:
		return cqlerr.Invalidf("Cannot use CONTAINS KEY on non-map column %s", col.Name)
	case r.Op == cql.OpContainsKey:
		spec.Name, spec.Type = "key("+col.Name+")", col.Type.Key
	default:
		spec.Name, spec.Type = "value("+col.Name+")", col.Type.Elem
	}
	t, err := p.term(r.Value, spec, nil)
	out.value.terms = []term{t}
	return err
}

func (p *planner) elementRelation(out *relation, r *cql.Relation) error {
	col := out.cols[0]
	if col.Type.Kind != cqltype.Map {
		return cqlerr.Invalidf("Column %s cannot be used as a map", col.Name)
	}
	if r.Op != cql.OpEQ {
		return cqlerr.Invalidf("Only EQ relations are supported on map entries")
	}
	var err error
	if out.elem, err = p.term(r.Elem, p.spec("key("+col.Name+")", col.Type.Key), nil); err != nil {
		return err
	}
	t, err := p.term(r.Value, p.spec("value("+col.Name+")", col.Type.Elem), nil)
	out.value.terms = []term{t}
	return err
}

// multiRelation compiles the right side of (a, b) op …. All columns must be
// clustering columns in their order.
func (p *planner) multiRelation(out *relation, r *cql.Relation) error {
	for i, c := range out.cols {
		if c.Kind != catalog.Clustering {
			return cqlerr.Invalidf("Multi-column relations can only be applied to clustering columns but was applied to: %s", c.Name)
		}
		if c.Position != i {
			return cqlerr.Invalidf("Clustering columns may not be skipped in multi-column relations. They should appear in the PRIMARY KEY order. Got %s", relationText(r))
		}
	}
	fields := make([]*cqltype.Type, len(out.cols))
	for i, c := range out.cols {
		fields[i] = c.Type
	}
	typ := cqltype.NewTuple(fields...)
	name := "(" + strings.Join(r.Columns, ",") + ")"
	var err error
	if r.Op != cql.OpIn {
		out.value, err = p.rowOf(r.Value, name, typ, r)
		return err
	}
	name = "in" + name
	if r.Value != nil {
		out.list, err = p.term(r.Value, p.spec(name, cqltype.NewList(typ)), nil)
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

func (p *planner) rowOf(t cql.Term, name string, typ *cqltype.Type, r *cql.Relation) (row, error) {
	lit, ok := t.(cql.TupleLit)
	if !ok {
		v, err := p.term(t, p.spec(name, typ), nil)
		return row{tuple: v, n: len(typ.Fields)}, err
	}
	if len(lit.Elems) != len(typ.Fields) {
		return row{}, cqlerr.Invalidf("Expected %d elements in value tuple, but got %d: %s", len(typ.Fields), len(lit.Elems), termText(lit))
	}
	out := row{terms: make([]term, len(lit.Elems))}
	for i, e := range lit.Elems {
		var err error
		if out.terms[i], err = p.term(e, p.spec(name+"["+itoa(i)+"]", typ.Fields[i].Type), nil); err != nil {
			return row{}, err
		}
	}
	return out, nil
}
