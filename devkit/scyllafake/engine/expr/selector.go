package expr

import (
	"encoding/hex"
	"slices"
	"strings"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// Selected is a compiled element of a select clause.
type Selected struct {
	Name string
	Type *cqltype.Type
	Col  *catalog.Column // of a plain column
	// Value computes the result of a row.
	Value func(x *EvalCtx, v *RowView) ([]byte, error)
}

// SelectColumn selects a column.
func SelectColumn(c *catalog.Column) Selected {
	return Selected{c.Name, c.Type, c, func(_ *EvalCtx, v *RowView) ([]byte, error) { return v.Value(c), nil }}
}

// IsCount reports whether t is count(*), the only aggregate.
func IsCount(t cql.Term) bool {
	f, ok := t.(cql.FuncCall)
	return ok && f.Name.Name == "count" && len(f.Args) == 0
}

// Selector compiles an element of a select clause.
func (p *Compiler) Selector(t cql.Term) (Selected, error) {
	switch t := t.(type) {
	case cql.ColumnRef:
		c := p.Table.ByName[t.Column]
		if c == nil {
			return Selected{}, cqlerr.Invalidf("Undefined name %s in selection clause", t.Column)
		}
		return SelectColumn(c), nil
	case cql.FuncCall:
		return p.functionSelector(t)
	}
	return Selected{}, cqlerr.Unsupported("'" + TermText(t) + "' in a select clause")
}

func (p *Compiler) functionSelector(t cql.FuncCall) (Selected, error) {
	name := t.Name.Name
	if name == "writetime" || name == "ttl" {
		return p.cellSelector(name, t)
	}
	args := make([]Selected, len(t.Args))
	names := make([]string, len(t.Args))
	for i, a := range t.Args {
		var err error
		if args[i], err = p.Selector(a); err != nil {
			return Selected{}, err
		}
		names[i] = args[i].Name
	}
	if name == "token" && !p.isPartitionKey(args) {
		return Selected{}, cqlerr.Unsupported("token() of other columns than those of the partition key")
	}
	fn, err := p.function(t.Name, len(args))
	if err != nil {
		return Selected{}, err
	}
	for i := range args {
		if !assignable(args[i].Type, fn.args[i]) {
			return Selected{}, cqlerr.Invalidf("Type error: %s of type %s cannot be an argument of function system.%s", args[i].Name, args[i].Type, fn.name)
		}
	}
	return Selected{
		Name: "system." + fn.name + "(" + strings.Join(names, ", ") + ")", Type: fn.ret,
		Value: func(x *EvalCtx, v *RowView) ([]byte, error) {
			return fn.apply(x, len(args), func(i int) ([]byte, error) { return args[i].Value(x, v) })
		},
	}, nil
}

// isPartitionKey reports whether selectors are the columns of the partition key.
func (p *Compiler) isPartitionKey(list []Selected) bool {
	return slices.EqualFunc(list, p.Table.PartitionKey, func(s Selected, c *catalog.Column) bool {
		return s.Col == c
	})
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
	out := Selected{Name: name + "(" + c.Name + ")", Type: cqltype.TInt}
	value := func(cell *store.Cell, now int64) []byte {
		if cell.TTL == 0 {
			return nil
		}
		return cqltype.EncodeInt32(int32(cell.Expiry - now))
	}
	if name == "writetime" {
		out.Type = cqltype.TBigInt
		value = func(cell *store.Cell, _ int64) []byte { return cqltype.EncodeInt64(cell.Timestamp) }
	}
	out.Value = func(_ *EvalCtx, v *RowView) ([]byte, error) {
		if d := v.data(c); d != nil && d.Cell != nil {
			return value(d.Cell, v.Now), nil
		}
		return nil, nil
	}
	return out, nil
}
