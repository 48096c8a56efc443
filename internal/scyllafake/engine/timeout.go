package engine

import (
	"github.com/scylla-outbox/scylla-outbox/internal/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/internal/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/internal/scyllafake/cqltype"
)

// timeout compiles USING TIMEOUT. Nothing here takes long enough for a
// timeout to matter, but a bad one is refused.
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
	if _, ok := v.(constant); ok {
		return nil, checkTimeout(nil, v)
	}
	return v, nil
}

// checkTimeout evaluates and checks a timeout; t may be nil.
func checkTimeout(x *evalCtx, t term) error {
	if t == nil {
		return nil
	}
	v, err := t.eval(x)
	switch {
	case err != nil:
		return err
	case v.Unset:
		return cqlerr.Invalidf("Timeout value cannot be unset")
	case v.Bytes == nil:
		return cqlerr.Invalidf("Timeout value cannot be null")
	}
	months, days, nanos := cqltype.DecodeDuration(v.Bytes)
	switch {
	case months != 0 || days != 0:
		return cqlerr.Invalidf("Timeout values cannot be expressed in days/months")
	case nanos%1e6 != 0:
		return cqlerr.Invalidf("Timeout values cannot have granularity finer than milliseconds")
	case nanos < 0:
		return cqlerr.Invalidf("Timeout values must be non-negative")
	}
	return nil
}
