package expr

import (
	"slices"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/catalog"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/cql"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/store"
)

// RowRanges evaluates the clustering restrictions to ranges in table order that do not
// overlap; nil means all rows, an empty slice none. unset means that a value was unset.
func (r *Restrictions) RowRanges(x *EvalCtx) (ranges []store.Range, unset bool, err error) {
	switch {
	case len(r.Multi) > 0:
		return r.multiRanges(x)
	case len(r.Rows) > 0:
		return r.singleRanges(x)
	}
	return nil, false, nil
}

// singleRanges makes ranges of restrictions on single columns: a product of
// values, and at most one slice at the end.
func (r *Restrictions) singleRanges(x *EvalCtx) ([]store.Range, bool, error) {
	prefixes := [][][]byte{nil}
	for i, list := range r.Rows {
		col := r.table.Clustering[i]
		discrete, slice := splitSlices(list)
		iv, unset, err := intervalOf(x, col, slice)
		if err != nil || unset {
			return nil, unset, err
		}
		if len(discrete) == 0 {
			return iv.ranges(col, prefixes), false, nil
		}
		vals, unset, err := intersect(x, col.Type, discrete)
		if err != nil || unset {
			return nil, unset, err
		}
		vals = slices.DeleteFunc(vals, func(v []byte) bool { return !iv.contains(col, v) })
		if col.Desc {
			slices.Reverse(vals)
		}
		if err := checkProduct("clustering-key", len(prefixes)*len(vals)); err != nil {
			return nil, false, err
		}
		next := make([][][]byte, 0, len(prefixes)*len(vals))
		for _, p := range prefixes {
			for _, v := range vals {
				next = append(next, append(slices.Clip(p), v))
			}
		}
		prefixes = next
	}
	ranges := make([]store.Range, len(prefixes))
	for i, p := range prefixes {
		ranges[i] = prefixRange(p)
	}
	return ranges, false, nil
}

func prefixRange(p [][]byte) store.Range {
	b := store.Bound{Prefix: p, Inclusive: true}
	return store.Range{Start: b, End: b}
}

func splitSlices(list []*Relation) (discrete, slice []*Relation) {
	if len(list) == 1 {
		if isSlice(list) {
			return nil, list
		}
		return list, nil
	}
	for _, r := range list {
		if r.Op == cql.OpEQ || r.Op == cql.OpIn {
			discrete = append(discrete, r)
		} else {
			slice = append(slice, r)
		}
	}
	return discrete, slice
}

// interval is a range of one column's values.
type interval struct {
	lo, hi         []byte
	hasLo, hasHi   bool
	loOpen, hiOpen bool
	empty          bool
}

func intervalOf(x *EvalCtx, col *catalog.Column, list []*Relation) (iv interval, unset bool, err error) {
	for _, r := range list {
		v, err := r.Value.Terms[0].Eval(x)
		if err != nil || v.Unset {
			return iv, v.Unset, err
		}
		if v.Bytes == nil {
			if err := x.nullKey(); err != nil {
				return iv, false, err
			}
			iv.empty = true
			continue
		}
		open := r.Op == cql.OpGT || r.Op == cql.OpLT
		if r.Op == cql.OpGT || r.Op == cql.OpGE {
			c := 1
			if iv.hasLo {
				c = col.Type.Compare(v.Bytes, iv.lo)
			}
			if c > 0 || c == 0 && open {
				iv.lo, iv.hasLo, iv.loOpen = v.Bytes, true, open
			}
			continue
		}
		c := -1
		if iv.hasHi {
			c = col.Type.Compare(v.Bytes, iv.hi)
		}
		if c < 0 || c == 0 && open {
			iv.hi, iv.hasHi, iv.hiOpen = v.Bytes, true, open
		}
	}
	if iv.hasLo && iv.hasHi {
		c := col.Type.Compare(iv.lo, iv.hi)
		iv.empty = iv.empty || c > 0 || c == 0 && (iv.loOpen || iv.hiOpen)
	}
	return iv, false, nil
}

func (iv *interval) contains(col *catalog.Column, v []byte) bool {
	if iv.empty {
		return false
	}
	if iv.hasLo {
		if c := col.Type.Compare(v, iv.lo); c < 0 || c == 0 && iv.loOpen {
			return false
		}
	}
	if iv.hasHi {
		if c := col.Type.Compare(v, iv.hi); c > 0 || c == 0 && iv.hiOpen {
			return false
		}
	}
	return true
}

// ranges appends the interval of col to each prefix.
func (iv *interval) ranges(col *catalog.Column, prefixes [][][]byte) []store.Range {
	if iv.empty {
		return []store.Range{}
	}
	out := make([]store.Range, len(prefixes))
	for i, p := range prefixes {
		lo := store.Bound{Prefix: p, Inclusive: true}
		hi := lo
		if iv.hasLo {
			lo = store.Bound{Prefix: append(slices.Clip(p), iv.lo), Inclusive: !iv.loOpen}
		}
		if iv.hasHi {
			hi = store.Bound{Prefix: append(slices.Clip(p), iv.hi), Inclusive: !iv.hiOpen}
		}
		if col.Desc {
			lo, hi = hi, lo
		}
		out[i] = store.Range{Start: lo, End: hi}
	}
	return out
}

// multiRanges makes ranges of restrictions on several columns at once.
func (r *Restrictions) multiRanges(x *EvalCtx) ([]store.Range, bool, error) {
	var prefixes [][][]byte
	named := false
	s := tupleSlice{cols: r.table.Clustering}
	for _, rel := range r.Multi {
		if rel.Op == cql.OpEQ || rel.Op == cql.OpIn {
			tuples, unset, err := rel.tuples(x)
			if err != nil || unset {
				return nil, unset, err
			}
			slices.SortFunc(tuples, r.comparePrefixes)
			tuples = slices.CompactFunc(tuples, func(a, b [][]byte) bool { return r.comparePrefixes(a, b) == 0 })
			if named {
				tuples = slices.DeleteFunc(tuples, func(t [][]byte) bool {
					_, found := slices.BinarySearchFunc(prefixes, t, r.comparePrefixes)
					return !found
				})
			}
			prefixes, named = tuples, true
			continue
		}
		vals, unset, err := rel.Value.Eval(x, nil)
		if err != nil || unset {
			return nil, unset, err
		}
		if slices.ContainsFunc(vals, isNull) {
			return []store.Range{}, false, nil
		}
		s.Add(rel.Op, vals)
	}
	if !named {
		return s.ranges(), false, nil
	}
	ranges := make([]store.Range, 0, len(prefixes))
	for _, p := range prefixes {
		if s.contains(p) {
			ranges = append(ranges, prefixRange(p))
		}
	}
	return ranges, false, nil
}

// comparePrefixes orders clustering prefixes as the table does.
func (r *Restrictions) comparePrefixes(a, b [][]byte) int {
	return catalog.CompareClustering(r.table.Clustering, a, b)
}
