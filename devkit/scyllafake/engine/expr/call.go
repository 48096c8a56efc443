package expr

import (
	"strings"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// call is a function applied to terms.
type call struct {
	fn   *function
	args []Term
}

// Eval implements Term.
func (c call) Eval(x *EvalCtx) (Value, error) {
	args := make([][]byte, len(c.args))
	for i, a := range c.args {
		v, err := a.Eval(x)
		if err != nil {
			return Value{}, err
		}
		if v.Unset {
			return Value{}, cqlerr.Invalidf("Invalid unset value for argument of function %s", c.fn.name)
		}
		if v.Bytes == nil && !c.fn.nulls {
			return Value{}, nil
		}
		args[i] = v.Bytes
	}
	b, err := c.fn.call(x, args)
	return Value{Bytes: b}, err
}

// call compiles a function call as a value for recv.
func (p *Compiler) call(t cql.FuncCall, recv ColumnSpec) (Term, error) {
	fn, err := p.overload(t, recv.Type)
	if err != nil {
		return nil, err
	}
	if fn == nil {
		return nil, cqlerr.Invalidf("Unknown function %s called", t.Name.Name)
	}
	if !assignable(fn.ret, recv.Type) {
		return nil, cqlerr.Invalidf("Type error: cannot assign result of function system.%s (type %s) to %s (type %s)",
			fn.name, fn.ret, recv.Name, recv.Type)
	}
	c := call{fn: fn, args: make([]Term, len(t.Args))}
	for i, a := range t.Args {
		spec := p.Spec("arg"+itoa(i)+"(system."+fn.name+")", fn.args[i])
		if c.args[i], err = p.Term(a, spec, nil); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// overload selects the function that a call names; nil if there is none of the name.
func (p *Compiler) overload(t cql.FuncCall, want *cqltype.Type) (*function, error) {
	if t.Name.Keyspace != "" && t.Name.Keyspace != "system" {
		return nil, nil
	}
	name := strings.ToLower(t.Name.Name)
	switch name {
	case "token":
		fn := tokenFunction(p.Table)
		return fn, checkArity(fn, len(t.Args))
	case "fromjson":
		if len(t.Args) != 1 {
			return nil, cqlerr.Invalidf("fromJson() function takes exactly one argument")
		}
		return fromJSON(want), nil
	}
	list := functions[name]
	var match *function
	for _, f := range list {
		fit := p.matches(t.Args, f)
		if fit == exact {
			return f, nil
		}
		if fit == weak {
			if match != nil {
				return nil, cqlerr.Invalidf("Ambiguous call to function %s (can be matched by following signatures: %s, %s): use type casts to disambiguate",
					name, signature(match), signature(f))
			}
			match = f
		}
	}
	if match == nil && len(list) > 0 {
		if len(list) == 1 {
			if err := checkArity(list[0], len(t.Args)); err != nil {
				return nil, err
			}
		}
		sigs := make([]string, len(list))
		for i, f := range list {
			sigs[i] = signature(f)
		}
		return nil, cqlerr.Invalidf("Invalid call to function system.%s, none of its type signatures match (known type signatures: %s)",
			name, strings.Join(sigs, ", "))
	}
	return match, nil
}

func checkArity(f *function, n int) error {
	if n == len(f.args) {
		return nil
	}
	return cqlerr.Invalidf("Invalid number of arguments in call to function system.%s: %d required but %d provided", f.name, len(f.args), n)
}

func signature(f *function) string {
	args := make([]string, len(f.args))
	for i, a := range f.args {
		args[i] = a.String()
	}
	return "system." + f.name + " : (" + strings.Join(args, ", ") + ") -> " + f.ret.String()
}

// fit is how well arguments match a signature.
type fit uint8

const (
	misfit fit = iota
	weak
	exact
)

func (p *Compiler) matches(args []cql.Term, f *function) fit {
	if len(args) != len(f.args) {
		return misfit
	}
	best := exact
	for i, a := range args {
		best = min(best, p.matchesType(a, f.args[i]))
	}
	return best
}

func (p *Compiler) matchesType(t cql.Term, want *cqltype.Type) fit {
	var have *cqltype.Type
	switch t := t.(type) {
	case cql.Null, cql.Marker:
		return weak
	case cql.Literal:
		if fits(t, want) {
			return weak
		}
		return misfit
	case cql.Cast:
		have, _ = p.parseType(t.Type)
	case cql.FuncCall:
		if f, err := p.overload(t, want); err == nil && f != nil {
			have = f.ret
		}
	case cql.ColumnRef:
		if c := p.Table.ByName[t.Column]; c != nil {
			have = c.Type
		}
	default:
		return weak
	}
	switch {
	case have == nil:
		return misfit
	case have.Freeze().Equal(want.Freeze()):
		return exact
	case assignable(have, want):
		return weak
	}
	return misfit
}

// encodeToken encodes a token as token() returns it. ScyllaDB's smallest token, that of
// log keys that are not stream ids, encodes as 0.
func encodeToken(t int64) []byte {
	if t == catalog.MinToken {
		t = 0
	}
	return cqltype.EncodeInt64(t)
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
