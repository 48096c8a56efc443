package expr

import (
	"slices"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// Holds reports whether the row satisfies the relation. A relation with null
// on either side never holds.
func (r *Relation) Holds(x *EvalCtx, v *RowView) (bool, error) {
	col := r.Cols[0]
	have := v.Value(col)
	switch {
	case have == nil:
		return false, nil
	case r.Op == cql.OpIn || r.Op == cql.OpEQ:
		vals, unset, err := r.members(x)
		if err != nil || unset {
			return false, err
		}
		return slices.ContainsFunc(vals, func(v []byte) bool { return col.Type.Compare(have, v) == 0 }), nil
	}
	want, err := r.Values[0].Eval(x)
	if err != nil || want.Unset || want.Bytes == nil {
		return false, err
	}
	return Satisfies(r.Op, col.Type.Compare(have, want.Bytes)), nil
}

// CheckOrder refuses an operator for a type whose order is not known.
func CheckOrder(op cql.Op, t *cqltype.Type) error {
	switch op {
	case cql.OpLT, cql.OpLE, cql.OpGT, cql.OpGE:
		if !t.IsOrdered() {
			return cqlerr.Unsupported("the order of values of type " + t.String())
		}
	}
	return nil
}

// Satisfies reports whether the result c of a comparison satisfies op.
func Satisfies(op cql.Op, c int) bool {
	switch op {
	case cql.OpEQ:
		return c == 0
	case cql.OpNE:
		return c != 0
	case cql.OpLT:
		return c < 0
	case cql.OpLE:
		return c <= 0
	case cql.OpGT:
		return c > 0
	case cql.OpGE:
		return c >= 0
	}
	return false
}
