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
	case r.elem != nil:
		key, err := r.elem.Eval(x)
		if err != nil {
			return false, err
		}
		have = MapValue(col.Type, have, key.Bytes)
		want, err := r.Value.Terms[0].Eval(x)
		return have != nil && want.Bytes != nil && col.Type.Elem.Compare(have, want.Bytes) == 0, err
	case r.Op == cql.OpContains || r.Op == cql.OpContainsKey:
		want, err := r.Value.Terms[0].Eval(x)
		if err != nil || want.Bytes == nil {
			return false, err
		}
		return Contains(col.Type, have, want.Bytes, r.Op == cql.OpContainsKey), nil
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
	if r.Op == cql.OpLike {
		return Like(have, want.Bytes), nil
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

// Contains reports whether a serialised collection has the element, or key.
func Contains(t *cqltype.Type, have, want []byte, key bool) bool {
	if t.Kind != cqltype.Map {
		for e := range cqltype.Elements(have) {
			if t.Elem.Compare(e, want) == 0 {
				return true
			}
		}
		return false
	}
	for k, v := range cqltype.Pairs(have) {
		if key && t.Key.Compare(k, want) == 0 || !key && t.Elem.Compare(v, want) == 0 {
			return true
		}
	}
	return false
}

// Like matches LIKE patterns: % is any text, _ one character, \ takes the next one
// literally.
func Like(text, pattern []byte) bool {
	var backText, backPattern []byte // where to resume after the last %
	for {
		switch {
		case len(pattern) > 0 && pattern[0] == '%':
			pattern = pattern[1:]
			backText, backPattern = text, pattern
			continue
		case len(pattern) > 0 && len(text) > 0:
			if n, m := likeStep(text, pattern); n > 0 {
				text, pattern = text[n:], pattern[m:]
				continue
			}
		case len(pattern) == 0 && len(text) == 0:
			return true
		}
		// On a mismatch the last % takes one byte more.
		if backPattern == nil || len(backText) == 0 {
			return false
		}
		backText = backText[1:]
		text, pattern = backText, backPattern
	}
}

// likeStep matches one character and returns the consumed lengths of text and pattern;
// 0 is a mismatch.
func likeStep(text, pattern []byte) (n, m int) {
	switch c := pattern[0]; {
	case c == '_':
		n = 1
		for n < len(text) && text[n]&0xc0 == 0x80 {
			n++
		}
		return n, 1
	case c == '\\' && len(pattern) > 1:
		if text[0] == pattern[1] {
			return 1, 2
		}
	case c == text[0]:
		return 1, 1
	}
	return 0, 0
}
