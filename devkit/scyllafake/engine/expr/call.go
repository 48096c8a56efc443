package expr

import (
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
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
		if v.Bytes == nil {
			return Value{}, nil
		}
		args[i] = v.Bytes
	}
	b, err := c.fn.call(x, args)
	return Value{Bytes: b}, err
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
	c := call{fn: fn, args: make([]Term, len(t.Args))}
	for i, a := range t.Args {
		spec := p.Spec("arg"+itoa(i)+"(system."+fn.name+")", fn.args[i])
		if c.args[i], err = p.Term(a, spec, nil); err != nil {
			return nil, err
		}
	}
	return c, nil
}
