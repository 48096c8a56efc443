package expr

import (
	"encoding/hex"
	"slices"
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
		if b == nil {
			return nil, nil
		}
		args[i] = b
	}
	return s.fn.call(x, args)
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
		return Selected{ColumnSelector{c}, c.Name, c.Type}, nil
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
	return Selected{callSelector{fn, args}, "system." + fn.name + "(" + strings.Join(names, ", ") + ")", fn.ret}, nil
}

// isPartitionKey reports whether selectors are the columns of the partition key.
func (p *Compiler) isPartitionKey(list []Selected) bool {
	return slices.EqualFunc(list, p.Table.PartitionKey, func(s Selected, c *catalog.Column) bool {
		return s.Selector == Selector(ColumnSelector{c})
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
	typ := cqltype.TBigInt
	if name == "ttl" {
		typ = cqltype.TInt
	}
	return Selected{cellSelector{c, name == "ttl"}, name + "(" + c.Name + ")", typ}, nil
}
