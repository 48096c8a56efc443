package expr

import (
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
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
		tuples, unset, err := r.tuples(x)
		if err != nil || unset {
			return false, err
		}
		for _, t := range tuples {
			if col.Type.Compare(have, t[0]) == 0 {
				return true, nil
			}
		}
		return false, nil
	}
	want, err := r.Value.Terms[0].Eval(x)
	if err != nil || want.Unset || want.Bytes == nil {
		return false, err
	}
	return Satisfies(r.Op, col.Type.Compare(have, want.Bytes)), nil
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

// MapValue returns the value of a key in a serialised map, nil if it is absent.
func MapValue(t *cqltype.Type, m, key []byte) []byte {
	if key == nil {
		return nil
	}
	for k, v := range cqltype.Pairs(m) {
		if t.Key.Compare(k, key) == 0 {
			return v
		}
	}
	return nil
}
