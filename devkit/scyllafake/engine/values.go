package engine

import (
	"slices"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
)

// orderValues returns the bound values in the order of the bind columns.
func orderValues(binds []ColumnSpec, p Params) ([]Value, error) {
	if len(p.Values) != len(binds) {
		return nil, cqlerr.Invalidf("Invalid amount of bind variables: expected %d received %d", len(binds), len(p.Values))
	}
	if p.Names == nil {
		return p.Values, nil
	}
	out := make([]Value, len(binds))
	for i := range binds {
		j := slices.Index(p.Names, binds[i].Name)
		if j < 0 {
			return nil, cqlerr.New(cqlerr.Server, "vector::_M_range_check: __n (which is %d) >= this->size() (which is %d)", i, i)
		}
		out[i] = p.Values[j]
	}
	return out, nil
}
