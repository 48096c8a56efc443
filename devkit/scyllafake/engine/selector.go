package engine

import (
	"encoding/hex"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// selector computes one result column from a row.
type selector interface {
	value(x *evalCtx, v *rowView) ([]byte, error)
}

// selected is a compiled selector and its description for the client.
type selected struct {
	selector
	name string
	typ  *cqltype.Type
	// aggregates means that the value is computed of a group, not of one row.
	aggregates bool
}

func plainSelector(s selector, name string, typ *cqltype.Type) selected {
	return selected{selector: s, name: name, typ: typ}
}

// columnSelector is a column.
type columnSelector struct{ col *catalog.Column }

func (s columnSelector) value(_ *evalCtx, v *rowView) ([]byte, error) { return v.value(s.col), nil }

// cellSelector is writetime(col) or, if ttl is set, ttl(col).
type cellSelector struct {
	col *catalog.Column
	ttl bool
}

func (s cellSelector) value(_ *evalCtx, v *rowView) ([]byte, error) {
	d := v.data(s.col)
	if d == nil || d.Cell == nil {
		return nil, nil
	}
	if !s.ttl {
		return cqltype.EncodeInt64(d.Cell.Timestamp), nil
	}
	if d.Cell.TTL == 0 {
		return nil, nil
	}
	return cqltype.EncodeInt32(int32(d.Cell.Expiry - v.now)), nil
}

// callSelector is a scalar function of other selectors.
type callSelector struct {
	fn   *function
	args []selected
}

func (s callSelector) value(x *evalCtx, v *rowView) ([]byte, error) {
	args := make([][]byte, len(s.args))
	for i := range s.args {
		b, err := s.args[i].value(x, v)
		if err != nil {
			return nil, err
		}
		if b == nil && !s.fn.nulls {
			return nil, nil
		}
		args[i] = b
	}
	return s.fn.call(x, args)
}

// fieldSelector is a field of a UDT.
type fieldSelector struct {
	of    selected
	index int
}

func (s fieldSelector) value(x *evalCtx, v *rowView) ([]byte, error) {
	b, err := s.of.value(x, v)
	if err != nil || b == nil {
		return nil, err
	}
	return cqltype.Component(b, s.index), nil
}

// selector compiles an element of a select clause. It appends aggregates to aggs, which
// is nil where none are allowed.
func (p *planner) selector(t cql.Term, aggs *[]*aggregate) (selected, error) {
	switch t := t.(type) {
	case cql.ColumnRef:
		c := p.table.ByName[t.Column]
		if c == nil {
			return selected{}, cqlerr.Invalidf("Undefined name %s in selection clause", t.Column)
		}
		return plainSelector(columnSelector{c}, c.Name, c.Type), nil
	case cql.FuncCall:
		return p.functionSelector(t, aggs)
	case cql.SelectCast:
		arg, err := p.selector(t.Arg, aggs)
		if err != nil {
			return selected{}, err
		}
		typ, err := p.parseType(t.Type)
		if err != nil {
			return selected{}, err
		}
		if arg.typ.Equal(typ) {
			return arg, nil
		}
		fn, err := castFunction(arg.typ, typ)
		if err != nil {
			return selected{}, err
		}
		return called(fn, arg), nil
	case cql.FieldSel:
		arg, err := p.selector(t.Arg, aggs)
		if err != nil {
			return selected{}, err
		}
		if arg.typ.Kind != cqltype.UDT {
			return selected{}, cqlerr.Invalidf("Invalid field selection: %s of type %s is not a user type", arg.name, arg.typ)
		}
		i := arg.typ.FieldIndex(t.Field)
		if i < 0 {
			return selected{}, cqlerr.Invalidf("%s of type %s has no field %s", arg.name, arg.typ, t.Field)
		}
		return selected{fieldSelector{arg, i}, arg.name + "." + t.Field, arg.typ.Fields[i].Type, arg.aggregates}, nil
	}
	return selected{}, cqlerr.Unsupported("'" + termText(t) + "' in a select clause")
}

func called(fn *function, args ...selected) selected {
	names := make([]string, len(args))
	aggregates := false
	for i := range args {
		names[i] = args[i].name
		aggregates = aggregates || args[i].aggregates
	}
	return selected{callSelector{fn, args}, "system." + fn.name + "(" + strings.Join(names, ", ") + ")", fn.ret, aggregates}
}

func (p *planner) functionSelector(t cql.FuncCall, aggs *[]*aggregate) (selected, error) {
	name := strings.ToLower(t.Name.Name)
	if t.Name.Keyspace != "" && t.Name.Keyspace != "system" {
		return selected{}, cqlerr.Invalidf("Unknown function '%s.%s'", t.Name.Keyspace, t.Name.Name)
	}
	switch name {
	case "writetime", "ttl":
		return p.cellSelector(name, t)
	case "count", "min", "max", "sum", "avg":
		return p.aggregateSelector(name, t, aggs)
	}
	args := make([]selected, len(t.Args))
	for i, a := range t.Args {
		var err error
		if args[i], err = p.selector(a, aggs); err != nil {
			return selected{}, err
		}
	}
	switch name {
	case "token":
		return called(p.selectedToken(args), args...), nil
	case "tojson":
		if len(args) != 1 {
			return selected{}, cqlerr.Invalidf("toJson() accepts 1 argument(s)")
		}
		return called(toJSON(args[0].typ), args...), nil
	}
	fn, err := selectOverload(name, args)
	if err != nil {
		return selected{}, err
	}
	return called(fn, args...), nil
}

// selectOverload selects a scalar function by the types of its arguments.
func selectOverload(name string, args []selected) (*function, error) {
	list := functions[name]
	if len(list) == 0 {
		return nil, cqlerr.Invalidf("Unknown function '%s'", name)
	}
	var match *function
	for _, f := range list {
		if len(f.args) != len(args) {
			continue
		}
		same, fits := true, true
		for i := range args {
			same = same && args[i].typ.Equal(f.args[i])
			fits = fits && assignable(args[i].typ, f.args[i])
		}
		if same {
			return f, nil
		}
		if fits && match == nil {
			match = f
		}
	}
	if match == nil {
		sigs := make([]string, len(list))
		for i, f := range list {
			sigs[i] = signature(f)
		}
		return nil, cqlerr.Invalidf("Invalid call to function system.%s, none of its type signatures match (known type signatures: %s)",
			name, strings.Join(sigs, ", "))
	}
	return match, nil
}

func (p *planner) cellSelector(name string, t cql.FuncCall) (selected, error) {
	shown := map[string]string{"writetime": "writeTime", "ttl": "ttl"}[name]
	var ref cql.ColumnRef
	ok := len(t.Args) == 1
	if ok {
		ref, ok = t.Args[0].(cql.ColumnRef)
	}
	if !ok {
		return selected{}, cqlerr.Invalidf("%s expects a column", shown)
	}
	c := p.table.ByName[ref.Column]
	switch {
	case c == nil:
		return selected{}, cqlerr.Invalidf("Undefined name %s in selection clause", ref.Column)
	case c.Kind <= catalog.Clustering:
		return selected{}, cqlerr.Invalidf("Cannot use selection function %s on PRIMARY KEY part %s", shown, hex.EncodeToString([]byte(c.Name)))
	case c.Type.IsMultiCell():
		return selected{}, cqlerr.Invalidf("Cannot use selection function %s on collections", shown)
	}
	typ := cqltype.TBigInt
	if name == "ttl" {
		typ = cqltype.TInt
	}
	return plainSelector(cellSelector{c, name == "ttl"}, name+"("+c.Name+")", typ), nil
}

// selectedToken returns token() in a select clause, where it takes any columns.
func (p *planner) selectedToken(args []selected) *function {
	t := p.table
	return &function{name: "token", ret: cqltype.TBigInt, call: func(_ *evalCtx, vals [][]byte) ([]byte, error) {
		if len(t.PartitionKey) == 1 && len(args) == 1 {
			return encodeToken(t.Token(vals[0])), nil
		}
		return encodeToken(t.Token(compositeKey(vals))), nil
	}}
}
