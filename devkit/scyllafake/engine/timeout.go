package engine

import (
	"time"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// timeout compiles USING TIMEOUT. No statement here takes long enough for a timeout,
// but an invalid one is refused, and hooks receive it.
func (p *planner) timeout(t cql.Term) (term, error) {
	if t == nil {
		return nil, nil
	}
	spec := ColumnSpec{Keyspace: "[batch]", Table: "[batch]", Name: "[timeout]", Type: cqltype.TDuration}
	if p.table != nil {
		spec = p.spec(spec.Name, spec.Type)
	}
	v, err := p.term(t, spec, nil)
	if err != nil {
		return nil, err
	}
	if c, ok := v.(constant); ok {
		if _, err := timeoutValue(Value{Bytes: c.b}); err != nil {
			return nil, err
		}
	}
	return v, nil
}

// setTimeout evaluates a timeout into the execution; t may be nil.
func (x *evalCtx) setTimeout(t term) error {
	if t == nil {
		return nil
	}
	v, err := t.eval(x)
	if err != nil {
		return err
	}
	x.timeout, err = timeoutValue(v)
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
