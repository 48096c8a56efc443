package expr

import (
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// Timeout compiles USING TIMEOUT. No statement here takes long enough for a timeout,
// but an invalid one is refused, and hooks receive it.
func (p *Compiler) Timeout(t cql.Term) (Term, error) {
	if t == nil {
		return nil, nil
	}
	spec := ColumnSpec{Keyspace: "[batch]", Table: "[batch]", Name: "[timeout]", Type: cqltype.TDuration}
	if p.Table != nil {
		spec = p.Spec(spec.Name, spec.Type)
	}
	v, err := p.Term(t, spec, nil)
	if err != nil {
		return nil, err
	}
	if c, ok := v.(Constant); ok {
		if _, err := timeoutValue(Value{Bytes: c.Bytes}); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// SetTimeout evaluates a timeout into the execution; t may be nil.
func (x *EvalCtx) SetTimeout(t Term) error {
	if t == nil {
		return nil
	}
	v, err := t.Eval(x)
	if err != nil {
		return err
	}
	x.Timeout, err = timeoutValue(v)
	return err
}

func timeoutValue(v Value) (time.Duration, error) {
	switch {
	case v.Unset:
		return 0, cqlerr.Invalidf("Timeout value cannot be unset")
	case v.Bytes == nil:
		return 0, cqlerr.Invalidf("Timeout value cannot be null")
	}
	months, days, nanos := cqltype.DecodeDuration(v.Bytes)
	switch {
	case months != 0 || days != 0:
		return 0, cqlerr.Invalidf("Timeout values cannot be expressed in days/months")
	case nanos%1e6 != 0:
		return 0, cqlerr.Invalidf("Timeout values cannot have granularity finer than milliseconds")
	case nanos < 0:
		return 0, cqlerr.Invalidf("Timeout values must be non-negative")
	}
	return time.Duration(nanos), nil
}
