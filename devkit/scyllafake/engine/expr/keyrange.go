package expr

import (
	"math"
	"slices"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqlerr"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cqltype"
)

// PartitionKeys returns the serialised keys that the clause names, in ascending order
// of their values and without duplicates. unset means that a value was unset: a write
// then does nothing and a read finds nothing.
func (r *Restrictions) PartitionKeys(x *EvalCtx) (keys [][]byte, unset bool, err error) {
	if len(r.Keys) == 1 && len(r.Keys[0]) == 1 && r.Keys[0][0].Op == cql.OpEQ {
		v, err := r.Keys[0][0].Values[0].Eval(x)
		if err == nil && v.Bytes == nil && !v.Unset {
			err = x.nullKey()
		}
		if err != nil || v.Unset || v.Bytes == nil {
			return nil, v.Unset, err
		}
		return [][]byte{v.Bytes}, false, nil
	}
	perColumn := make([][][]byte, len(r.Keys))
	n := 1
	for i, list := range r.Keys {
		vals, skip, err := intersect(x, r.table.PartitionKey[i].Type, list)
		if err != nil || skip {
			return nil, skip, err
		}
		perColumn[i] = vals
		n *= len(vals)
	}
	if err := checkProduct("partition-key", n); err != nil {
		return nil, false, err
	}
	keys = make([][]byte, 0, n)
	parts := make([][]byte, len(r.Keys))
	err = product(perColumn, parts, func() error {
		key, err := r.table.EncodeKey(parts)
		if err != nil {
			return cqlerr.Invalidf("%v", err)
		}
		keys = append(keys, key)
		return nil
	})
	return keys, false, err
}

// maxProduct limits the keys that one statement may name by IN (ScyllaDB's
// max_partition_key_restrictions_per_query and its equivalent for rows).
const maxProduct = 100

func checkProduct(what string, n int) error {
	if n <= maxProduct {
		return nil
	}
	return cqlerr.New(cqlerr.Server, "%s cartesian product size %d is greater than maximum %d", what, n, maxProduct)
}

// product calls f for every choice of one value per column, the first column
// changing last, with the choice in parts.
func product(columns [][][]byte, parts [][]byte, f func() error) error {
	i := len(parts) - len(columns)
	if len(columns) == 0 {
		return f()
	}
	for _, v := range columns[0] {
		parts[i] = v
		if err := product(columns[1:], parts, f); err != nil {
			return err
		}
	}
	return nil
}

// intersect evaluates the = and IN relations of one column to the sorted
// values that satisfy all of them.
func intersect(x *EvalCtx, t *cqltype.Type, list []*Relation) (vals [][]byte, unset bool, err error) {
	for i, rel := range list {
		set, skip, err := rel.members(x)
		if err != nil || skip {
			return nil, skip, err
		}
		slices.SortFunc(set, t.Compare)
		set = slices.CompactFunc(set, func(a, b []byte) bool { return t.Compare(a, b) == 0 })
		if i > 0 {
			set = slices.DeleteFunc(set, func(v []byte) bool {
				_, found := slices.BinarySearchFunc(vals, v, t.Compare)
				return !found
			})
		}
		vals = set
	}
	return vals, false, nil
}

// TokenRange evaluates the token bounds; empty means that they exclude each other.
func (r *Restrictions) TokenRange(x *EvalCtx) (lo, hi int64, empty bool, err error) {
	lo, hi = math.MinInt64, math.MaxInt64
	for _, b := range r.Tokens {
		v, err := b.value.Eval(x)
		if err != nil {
			return 0, 0, false, err
		}
		if v.Unset {
			return 0, 0, false, cqlerr.Invalidf("Invalid unset value for the token restriction")
		}
		tok, ok := cqltype.TBigInt.DecodeInt(v.Bytes)
		if !ok {
			return 0, 0, false, cqlerr.Invalidf("Invalid null token!")
		}
		switch b.op {
		case cql.OpEQ:
			lo, hi = max(lo, tok), min(hi, tok)
		case cql.OpGE:
			lo = max(lo, tok)
		case cql.OpGT:
			if tok == math.MaxInt64 {
				return 0, 0, true, nil
			}
			lo = max(lo, tok+1)
		case cql.OpLE, cql.OpLT:
			// As an end, the smallest token means the end of the ring.
			if tok == catalog.MinToken {
				continue
			}
			if b.op == cql.OpLT {
				tok--
			}
			hi = min(hi, tok)
		}
	}
	return lo, hi, lo > hi, nil
}
