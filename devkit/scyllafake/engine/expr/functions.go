package expr

import (
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// function is a scalar function. Its arguments are never unset or null: a null among
// them is the result.
type function struct {
	name string // as in column names, lower case
	args []*cqltype.Type
	ret  *cqltype.Type
	call func(x *EvalCtx, args [][]byte) ([]byte, error)
}

// functions contains the functions by name; token is that of a table.
var functions = map[string]*function{
	"now": {name: "now", ret: cqltype.TTimeUUID, call: func(x *EvalCtx, _ [][]byte) ([]byte, error) {
		u := x.Clock.timeUUID()
		return u[:], nil
	}},
	"totimestamp": {name: "totimestamp", args: []*cqltype.Type{cqltype.TTimeUUID}, ret: cqltype.TTimestamp, call: func(_ *EvalCtx, args [][]byte) ([]byte, error) {
		if len(args[0]) == 0 {
			return nil, nil
		}
		return cqltype.EncodeInt64(cqltype.TimeUUIDMillis(args[0])), nil
	}},
}

// function finds the function that a call with n arguments names.
func (p *Compiler) function(name cql.Name, n int) (*function, error) {
	fn := functions[name.Name]
	if name.Name == "token" {
		fn = tokenFunction(p.Table)
	}
	switch {
	case fn == nil || name.Keyspace != "" && name.Keyspace != "system":
		return nil, cqlerr.Unsupported("the function " + name.Name + "()")
	case n != len(fn.args):
		return nil, cqlerr.Invalidf("Invalid number of arguments in call to function system.%s: %d required but %d provided", fn.name, len(fn.args), n)
	}
	return fn, nil
}

// tokenFunction returns token() over the partition key of t.
func tokenFunction(t *catalog.Table) *function {
	args := make([]*cqltype.Type, len(t.PartitionKey))
	for i, c := range t.PartitionKey {
		args[i] = c.Type
	}
	return &function{name: "token", args: args, ret: cqltype.TBigInt, call: func(_ *EvalCtx, args [][]byte) ([]byte, error) {
		key, err := t.EncodeKey(args)
		if err != nil {
			return nil, cqlerr.Invalidf("%v", err)
		}
		return encodeToken(t.Token(key)), nil
	}}
}

// encodeToken encodes a token as token() returns it. ScyllaDB's smallest token, that of
// log keys that are not stream ids, encodes as 0.
func encodeToken(t int64) []byte {
	if t == catalog.MinToken {
		t = 0
	}
	return cqltype.EncodeInt64(t)
}

// apply evaluates n arguments and calls the function; a null among them is the result.
func (f *function) apply(x *EvalCtx, n int, arg func(i int) ([]byte, error)) ([]byte, error) {
	args := make([][]byte, n)
	for i := range args {
		var err error
		if args[i], err = arg(i); err != nil || args[i] == nil {
			return nil, err
		}
	}
	return f.call(x, args)
}

// call compiles a function call as a value for recv.
func (p *Compiler) call(t cql.FuncCall, recv ColumnSpec) (Term, error) {
	fn, err := p.function(t.Name, len(t.Args))
	if err != nil {
		return nil, err
	}
	if !assignable(fn.ret, recv.Type) {
		return nil, cqlerr.Invalidf("Type error: cannot assign result of function system.%s (type %s) to %s (type %s)",
			fn.name, fn.ret, recv.Name, recv.Type)
	}
	args := make([]Term, len(t.Args))
	for i, a := range t.Args {
		spec := p.Spec("arg"+itoa(i)+"(system."+fn.name+")", fn.args[i])
		if args[i], err = p.Term(a, spec, nil); err != nil {
			return nil, err
		}
	}
	return evaluation(func(x *EvalCtx) (Value, error) {
		b, err := fn.apply(x, len(args), func(i int) ([]byte, error) {
			v, err := args[i].Eval(x)
			if v.Unset {
				err = cqlerr.Invalidf("Invalid unset value for argument of function %s", fn.name)
			}
			return v.Bytes, err
		})
		return Value{Bytes: b}, err
	}), nil
}
