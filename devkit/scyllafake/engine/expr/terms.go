package expr

import (
	"slices"
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// EvalCtx is the context of evaluating terms: one execution of a statement.
type EvalCtx struct {
	Clock *Clock
	Vals  []Value // in the order of the plan's bind columns
	Now   time.Time
	// Timeout is the statement's USING TIMEOUT, 0 without one.
	Timeout time.Duration
	// StrictKeys refuses a null for a key column; without it a null matches nothing.
	StrictKeys bool
}

// Term is a value expression compiled for the type of its target.
type Term interface {
	Eval(x *EvalCtx) (Value, error)
}

// Constant is a value known when the statement is planned.
type Constant struct{ Bytes []byte }

// Eval implements Term.
func (c Constant) Eval(*EvalCtx) (Value, error) { return Value{Bytes: c.Bytes}, nil }

// Null is the constant null.
var Null = Constant{}

// bound is the value of a marker.
type bound struct {
	index int
	spec  ColumnSpec
}

// Eval implements Term.
func (b bound) Eval(x *EvalCtx) (Value, error) {
	v := x.Vals[b.index]
	if v.Unset || v.Bytes == nil {
		return v, nil
	}
	if err := b.spec.Type.Validate(v.Bytes); err != nil {
		return Value{}, cqltype.BindError(b.spec.Name, err)
	}
	v.Bytes = cqltype.Normalize(b.spec.Type, v.Bytes)
	return v, nil
}

// collection builds a list, set or map of its elements; keys is nil except for maps.
type collection struct {
	typ         *cqltype.Type
	keys, elems []Term
}

// Eval implements Term.
func (c collection) Eval(x *EvalCtx) (Value, error) {
	keys, err := evalElements(x, c.keys)
	if err != nil {
		return Value{}, err
	}
	elems, err := evalElements(x, c.elems)
	if err != nil {
		return Value{}, err
	}
	if c.typ.Kind == cqltype.Map {
		return Value{Bytes: cqltype.Normalize(c.typ, cqltype.BuildMap(keys, elems))}, nil
	}
	return Value{Bytes: cqltype.Normalize(c.typ, cqltype.BuildCollection(elems...))}, nil
}

func evalElements(x *EvalCtx, terms []Term) ([][]byte, error) {
	out := make([][]byte, len(terms))
	for i, t := range terms {
		v, err := t.Eval(x)
		switch {
		case err != nil:
			return nil, err
		case v.Unset:
			return nil, errUnsetElement
		case v.Bytes == nil:
			return nil, errNullElement
		}
		out[i] = v.Bytes
	}
	return out, nil
}

// tuple builds a tuple of its components.
type tuple struct{ elems []Term }

// Eval implements Term.
func (t tuple) Eval(x *EvalCtx) (Value, error) {
	parts := make([][]byte, len(t.elems))
	for i, e := range t.elems {
		v, err := e.Eval(x)
		if err != nil {
			return Value{}, err
		}
		if v.Unset {
			return Value{}, cqlerr.Invalidf("Invalid unset value for tuple field number %d", i)
		}
		parts[i] = v.Bytes
	}
	return Value{Bytes: cqltype.BuildTuple(parts...)}, nil
}

// Term compiles t as a value for recv. target is the column if recv is the whole of
// one.
func (p *Compiler) Term(t cql.Term, recv ColumnSpec, target *catalog.Column) (Term, error) {
	switch t := t.(type) {
	case cql.Null:
		return Null, nil
	case cql.Marker:
		p.marker(t.Index, recv, target)
		return bound{t.Index, p.Binds[t.Index]}, nil
	case cql.Literal:
		b, err := literal(t, recv)
		return Constant{b}, err
	case cql.ListLit:
		if recv.Type.Kind != cqltype.List {
			return nil, cqlerr.Invalidf("Invalid list literal for %s of type %s", recv.Name, recv.Type)
		}
		return p.collection("list", nil, t.Elems, recv)
	case cql.SetLit:
		if recv.Type.Kind == cqltype.Map && len(t.Elems) == 0 {
			return fold(collection{typ: recv.Type})
		}
		if recv.Type.Kind != cqltype.Set {
			return nil, cqlerr.Invalidf("Invalid set literal for %s of type %s", recv.Name, recv.Type)
		}
		return p.collection("set", nil, t.Elems, recv)
	case cql.MapLit:
		if recv.Type.Kind != cqltype.Map {
			return nil, cqlerr.Invalidf("Invalid map literal for %s of type %s", recv.Name, recv.Type)
		}
		return p.collection("map", t.Keys, t.Values, recv)
	case cql.TupleLit:
		return p.tuple(t, recv)
	case cql.FuncCall:
		return p.call(t, recv)
	}
	return nil, cqlerr.Invalidf("Invalid value %s for %s", TermText(t), recv.Name)
}

func (p *Compiler) collection(kind string, keys, elems []cql.Term, recv ColumnSpec) (Term, error) {
	c := collection{typ: recv.Type}
	var err error
	part := func(terms []cql.Term, spec ColumnSpec) []Term {
		out := make([]Term, 0, len(terms))
		for _, t := range terms {
			if err != nil {
				return nil
			}
			if lit, ok := t.(cql.Literal); ok && !fits(lit, spec.Type) {
				err = cqlerr.Invalidf("Invalid %s literal for %s: value %s is not of type %s",
					kind, recv.Name, TermText(t), spec.Type)
				return nil
			}
			var e Term
			e, err = p.Term(t, spec, nil)
			out = append(out, e)
		}
		return out
	}
	value := recv
	value.Type = recv.Type.Elem
	value.Name = "value(" + recv.Name + ")"
	if keys != nil {
		key := recv
		key.Type = recv.Type.Key
		key.Name = "key(" + recv.Name + ")"
		c.keys = part(keys, key)
	}
	c.elems = part(elems, value)
	if err != nil {
		return nil, err
	}
	return fold(c, append(slices.Clone(c.keys), c.elems...)...)
}

func (p *Compiler) tuple(t cql.TupleLit, recv ColumnSpec) (Term, error) {
	if recv.Type.Kind != cqltype.Tuple {
		// One value in parentheses is that value.
		if len(t.Elems) == 1 {
			return p.Term(t.Elems[0], recv, nil)
		}
		return nil, cqlerr.Invalidf("Invalid tuple type literal for %s of type %s", recv.Name, recv.Type)
	}
	if len(t.Elems) > len(recv.Type.Fields) {
		return nil, cqlerr.Invalidf("Invalid tuple literal for %s: too many elements. Type %s expects %d but got %d",
			recv.Name, recv.Type, len(recv.Type.Fields), len(t.Elems))
	}
	out := tuple{make([]Term, len(t.Elems))}
	for i, e := range t.Elems {
		spec := recv
		spec.Name = recv.Name + "[" + itoa(i) + "]"
		spec.Type = recv.Type.Fields[i]
		if lit, ok := e.(cql.Literal); ok && !fits(lit, spec.Type) {
			return nil, cqlerr.Invalidf("Invalid tuple literal for %s: component %d is not of type %s", recv.Name, i, spec.Type)
		}
		var err error
		if out.elems[i], err = p.Term(e, spec, nil); err != nil {
			return nil, err
		}
	}
	return fold(out, out.elems...)
}

// fold evaluates t now if all its parts are constants. Nulls among them are refused at
// execution, as ScyllaDB does.
func fold(t Term, parts ...Term) (Term, error) {
	for _, part := range parts {
		if c, ok := part.(Constant); !ok || c.Bytes == nil {
			return t, nil
		}
	}
	v, err := t.Eval(nil)
	if err != nil {
		return nil, err
	}
	return Constant{v.Bytes}, nil
}

// assignable reports whether a value of from can be assigned to a column of to.
func assignable(from, to *cqltype.Type) bool {
	from, to = from.Freeze(), to.Freeze()
	if from.Equal(to) {
		return true
	}
	switch to.Kind {
	case cqltype.Blob:
		return true
	case cqltype.Varchar:
		return from.Kind == cqltype.ASCII
	case cqltype.UUID:
		return from.Kind == cqltype.TimeUUID
	case cqltype.BigInt:
		return from.Kind == cqltype.Timestamp
	case cqltype.Varint:
		return from.Kind == cqltype.BigInt || from.Kind == cqltype.Int ||
			from.Kind == cqltype.SmallInt || from.Kind == cqltype.TinyInt
	}
	return false
}
