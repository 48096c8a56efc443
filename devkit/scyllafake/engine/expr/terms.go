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

// evaluation is a term that is evaluated with each execution.
type evaluation func(x *EvalCtx) (Value, error)

// Eval implements Term.
func (e evaluation) Eval(x *EvalCtx) (Value, error) { return e(x) }

// bound returns the value of a marker.
func bound(index int, spec ColumnSpec) Term {
	return evaluation(func(x *EvalCtx) (Value, error) {
		v := x.Vals[index]
		if v.Unset || v.Bytes == nil {
			return v, nil
		}
		if err := spec.Type.Validate(v.Bytes); err != nil {
			return Value{}, cqltype.BindError(spec.Name, err)
		}
		v.Bytes = cqltype.Normalize(spec.Type, v.Bytes)
		return v, nil
	})
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

// Term compiles t as a value for recv. target is the column if recv is the whole of
// one.
func (p *Compiler) Term(t cql.Term, recv ColumnSpec, target *catalog.Column) (Term, error) {
	switch t := t.(type) {
	case cql.Null:
		return Null, nil
	case cql.Marker:
		p.marker(t.Index, recv, target)
		return bound(t.Index, p.Binds[t.Index]), nil
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
			return Constant{cqltype.BuildMap(nil, nil)}, nil
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
		switch {
		case recv.Type.Kind == cqltype.Tuple:
			return nil, cqlerr.Unsupported("tuples as constants")
		case len(t.Elems) > 1:
			return nil, cqlerr.Invalidf("Invalid tuple type literal for %s of type %s", recv.Name, recv.Type)
		}
		return p.Term(t.Elems[0], recv, nil) // one value in parentheses is that value
	case cql.FuncCall:
		return p.call(t, recv)
	}
	return nil, cqlerr.Invalidf("Invalid value %s for %s", TermText(t), recv.Name)
}

func (p *Compiler) collection(kind string, keys, elems []cql.Term, recv ColumnSpec) (Term, error) {
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
	value, key := recv, recv
	value.Type, value.Name = recv.Type.Elem, "value("+recv.Name+")"
	key.Type, key.Name = recv.Type.Key, "key("+recv.Name+")"
	k, e := part(keys, key), part(elems, value)
	if err != nil {
		return nil, err
	}
	c := evaluation(func(x *EvalCtx) (Value, error) {
		keys, err := evalElements(x, k)
		if err != nil {
			return Value{}, err
		}
		elems, err := evalElements(x, e)
		if err != nil {
			return Value{}, err
		}
		b := cqltype.BuildCollection(elems...)
		if recv.Type.Kind == cqltype.Map {
			b = cqltype.BuildMap(keys, elems)
		}
		return Value{Bytes: cqltype.Normalize(recv.Type, b)}, nil
	})
	// It is evaluated now if all its parts are constants. Nulls among them are refused at
	// execution, as ScyllaDB does.
	for _, part := range append(slices.Clone(k), e...) {
		if v, ok := part.(Constant); !ok || v.Bytes == nil {
			return c, nil
		}
	}
	v, err := c.Eval(nil)
	return Constant{v.Bytes}, err
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

// fits reports whether a constant of l's class can be assigned to a t.
func fits(l cql.Literal, t *cqltype.Type) bool { return t.Accepts(l.Kind) }

// literal serialises a constant for recv.
func literal(l cql.Literal, recv ColumnSpec) ([]byte, error) {
	if !fits(l, recv.Type) {
		return nil, cqlerr.Invalidf("Invalid %s constant (%s) for \"%s\" of type %s",
			l.Kind, l.Text, recv.Name, recv.Type)
	}
	return recv.Type.FromText(l.Text)
}
