package expr

import (
	"slices"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// ColumnSpec is a bind or result column.
type ColumnSpec struct {
	Keyspace, Table, Name string
	Type                  *cqltype.Type
}

// Value is a bound value.
type Value struct {
	Bytes []byte // nil is null
	Unset bool
}

// OrderValues returns the bound values in the order of the bind columns.
func OrderValues(binds []ColumnSpec, values []Value, names []string) ([]Value, error) {
	if len(values) != len(binds) {
		return nil, cqlerr.Invalidf("Invalid amount of bind variables: expected %d received %d", len(binds), len(values))
	}
	if names == nil {
		return values, nil
	}
	out := make([]Value, len(binds))
	for i := range binds {
		j := slices.Index(names, binds[i].Name)
		if j < 0 {
			return nil, cqlerr.New(cqlerr.Server, "vector::_M_range_check: __n (which is %d) >= this->size() (which is %d)", i, i)
		}
		out[i] = values[j]
	}
	return out, nil
}
