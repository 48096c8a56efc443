package expr

import (
	"encoding/hex"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// Selector computes one result column from a row.
type Selector interface {
	Value(x *EvalCtx, v *RowView) ([]byte, error)
}

// Selected is a compiled selector and its description for the client.
type Selected struct {
	Selector
	Name string
	Type *cqltype.Type
	// Aggregates means that the value is computed of a group, not of one row.
	Aggregates bool
}

// PlainSelector returns a selector of rows, not of groups.
func PlainSelector(s Selector, name string, typ *cqltype.Type) Selected {
	return Selected{Selector: s, Name: name, Type: typ}
}

// ColumnSelector is a column.
type ColumnSelector struct{ Col *catalog.Column }

// Value implements Selector.
func (s ColumnSelector) Value(_ *EvalCtx, v *RowView) ([]byte, error) { return v.Value(s.Col), nil }

// cellSelector is writetime(col) or, if ttl is set, ttl(col).
type cellSelector struct {
	col *catalog.Column
	ttl bool
}

// Value implements Selector.
func (s cellSelector) Value(_ *EvalCtx, v *RowView) ([]byte, error) {
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
	return cqltype.EncodeInt32(int32(d.Cell.Expiry - v.Now)), nil
}

// callSelector is a scalar function of other selectors.
type callSelector struct {
	fn   *function
	args []Selected
}

// Value implements Selector.
func (s callSelector) Value(x *EvalCtx, v *RowView) ([]byte, error) {
	args := make([][]byte, len(s.args))
	for i := range s.args {
		b, err := s.args[i].Value(x, v)
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
	of    Selected
	index int
}

// Value implements Selector.
func (s fieldSelector) Value(x *EvalCtx, v *RowView) ([]byte, error) {
	b, err := s.of.Value(x, v)
	if err != nil || b == nil {
		return nil, err
	}
	return cqltype.Component(b, s.index), nil
}

// Selector compiles an element of a select clause. It appends aggregates to aggs, which
// is nil where none are allowed.
func (p *Compiler) Selector(t cql.Term, aggs *[]*Aggregate) (Selected, error) {
	switch t := t.(type) {
	case cql.ColumnRef:
		c := p.Table.ByName[t.Column]
		if c == nil {
			return Selected{}, cqlerr.Invalidf("Undefined name %s in selection clause", t.Column)
		}
		return PlainSelector(ColumnSelector{c}, c.Name, c.Type), nil
	case cql.FuncCall:
		return p.functionSelector(t, aggs)
	case cql.SelectCast:
		arg, err := p.Selector(t.Arg, aggs)
		if err != nil {
			return Selected{}, err
		}
		typ, err := p.parseType(t.Type)
		if err != nil {
			return Selected{}, err
		}
		if arg.Type.Equal(typ) {
			return arg, nil
		}
		fn, err := castFunction(arg.Type, typ)
		if err != nil {
			return Selected{}, err
		}
		return called(fn, arg), nil
	case cql.FieldSel:
		arg, err := p.Selector(t.Arg, aggs)
		if err != nil {
			return Selected{}, err
		}
		if arg.Type.Kind != cqltype.UDT {
			return Selected{}, cqlerr.Invalidf("Invalid field selection: %s of type %s is not a user type", arg.Name, arg.Type)
		}
		i := arg.Type.FieldIndex(t.Field)
		if i < 0 {
			return Selected{}, cqlerr.Invalidf("%s of type %s has no field %s", arg.Name, arg.Type, t.Field)
		}
		return Selected{fieldSelector{arg, i}, arg.Name + "." + t.Field, arg.Type.Fields[i].Type, arg.Aggregates}, nil
	}
	return Selected{}, cqlerr.Unsupported("'" + TermText(t) + "' in a select clause")
}

func called(fn *function, args ...Selected) Selected {
	names := make([]string, len(args))
	aggregates := false
	for i := range args {
		names[i] = args[i].Name
		aggregates = aggregates || args[i].Aggregates
	}
	return Selected{callSelector{fn, args}, "system." + fn.name + "(" + strings.Join(names, ", ") + ")", fn.ret, aggregates}
}

func (p *Compiler) functionSelector(t cql.FuncCall, aggs *[]*Aggregate) (Selected, error) {
	name := strings.ToLower(t.Name.Name)
	if t.Name.Keyspace != "" && t.Name.Keyspace != "system" {
		return Selected{}, cqlerr.Invalidf("Unknown function '%s.%s'", t.Name.Keyspace, t.Name.Name)
	}
	switch name {
	case "writetime", "ttl":
		return p.cellSelector(name, t)
	case "count", "min", "max", "sum", "avg":
		return p.aggregateSelector(name, t, aggs)
	}
	args := make([]Selected, len(t.Args))
	for i, a := range t.Args {
		var err error
		if args[i], err = p.Selector(a, aggs); err != nil {
			return Selected{}, err
		}
	}
	switch name {
	case "token":
		return called(p.selectedToken(args), args...), nil
	case "tojson":
		if len(args) != 1 {
			return Selected{}, cqlerr.Invalidf("toJson() accepts 1 argument(s)")
		}
		return called(toJSON(args[0].Type), args...), nil
	}
	fn, err := selectOverload(name, args)
	if err != nil {
		return Selected{}, err
	}
	return called(fn, args...), nil
}

// selectOverload selects a scalar function by the types of its arguments.
func selectOverload(name string, args []Selected) (*function, error) {
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
			same = same && args[i].Type.Equal(f.args[i])
			fits = fits && assignable(args[i].Type, f.args[i])
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

func (p *Compiler) cellSelector(name string, t cql.FuncCall) (Selected, error) {
	shown := map[string]string{"writetime": "writeTime", "ttl": "ttl"}[name]
	var ref cql.ColumnRef
	ok := len(t.Args) == 1
	if ok {
		ref, ok = t.Args[0].(cql.ColumnRef)
	}
	if !ok {
		return Selected{}, cqlerr.Invalidf("%s expects a column", shown)
	}
	c := p.Table.ByName[ref.Column]
	switch {
	case c == nil:
		return Selected{}, cqlerr.Invalidf("Undefined name %s in selection clause", ref.Column)
	case c.Kind <= catalog.Clustering:
		return Selected{}, cqlerr.Invalidf("Cannot use selection function %s on PRIMARY KEY part %s", shown, hex.EncodeToString([]byte(c.Name)))
	case c.Type.IsMultiCell():
		return Selected{}, cqlerr.Invalidf("Cannot use selection function %s on collections", shown)
	}
	typ := cqltype.TBigInt
	if name == "ttl" {
		typ = cqltype.TInt
	}
	return PlainSelector(cellSelector{c, name == "ttl"}, name+"("+c.Name+")", typ), nil
}

// selectedToken returns token() in a select clause, where it takes any columns.
func (p *Compiler) selectedToken(args []Selected) *function {
	t := p.Table
	return &function{name: "token", ret: cqltype.TBigInt, call: func(_ *EvalCtx, vals [][]byte) ([]byte, error) {
		if len(t.PartitionKey) == 1 && len(args) == 1 {
			return encodeToken(t.Token(vals[0])), nil
		}
		return encodeToken(t.Token(CompositeKey(vals))), nil
	}}
}
