package cqltype

import (
	"encoding/binary"
	"iter"
	"slices"
)

// AppendElement appends one element of a collection or tuple: its length as a
// 32-bit number, then its bytes. A nil v is null, length -1.
func AppendElement(dst, v []byte) []byte {
	if v == nil {
		return append(dst, 0xff, 0xff, 0xff, 0xff)
	}
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(v)))
	return append(dst, v...)
}

// readElement splits the first element off b. ok is false when b is too short.
func readElement(b []byte) (v, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n := int32(binary.BigEndian.Uint32(b))
	b = b[4:]
	if n < 0 {
		return nil, b, true
	}
	if int(n) > len(b) {
		return nil, nil, false
	}
	return b[:n:n], b[n:], true
}

// Count returns the number of elements (of a map: pairs) of a serialised collection; 0
// for null and for invalid bytes.
func Count(v []byte) int {
	if len(v) < 4 {
		return 0
	}
	return max(0, int(int32(binary.BigEndian.Uint32(v))))
}

// Elements walks a serialised list or set. It stops early where the bytes are
// malformed, which Validate reports.
func Elements(v []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		n := Count(v)
		if n == 0 {
			return
		}
		rest := v[4:]
		for range n {
			e, r, ok := readElement(rest)
			if !ok || !yield(e) {
				return
			}
			rest = r
		}
	}
}

// Pairs walks a serialised map; like Elements.
func Pairs(v []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		n := Count(v)
		if n == 0 {
			return
		}
		rest := v[4:]
		for range n {
			k, r, ok := readElement(rest)
			if !ok {
				return
			}
			e, r, ok := readElement(r)
			if !ok || !yield(k, e) {
				return
			}
			rest = r
		}
	}
}

// Components walks the components present in a serialised tuple; missing
// trailing ones are null. The first result is the position.
func Components(v []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		for i := 0; len(v) > 0; i++ {
			e, rest, ok := readElement(v)
			if !ok || !yield(i, e) {
				return
			}
			v = rest
		}
	}
}

// BuildCollection serialises a list or set of the elements without a change of order.
func BuildCollection(elems ...[]byte) []byte {
	size := 4
	for _, e := range elems {
		size += 4 + len(e)
	}
	dst := binary.BigEndian.AppendUint32(make([]byte, 0, size), uint32(len(elems)))
	for _, e := range elems {
		dst = AppendElement(dst, e)
	}
	return dst
}

// BuildMap serialises a map of the pairs without a change of order; both slices have
// one length.
func BuildMap(keys, values [][]byte) []byte {
	size := 4
	for i := range keys {
		size += 8 + len(keys[i]) + len(values[i])
	}
	dst := binary.BigEndian.AppendUint32(make([]byte, 0, size), uint32(len(keys)))
	for i := range keys {
		dst = AppendElement(AppendElement(dst, keys[i]), values[i])
	}
	return dst
}

// BuildTuple serialises a tuple; nil components are null.
func BuildTuple(components ...[]byte) []byte {
	size := 0
	for _, c := range components {
		size += 4 + len(c)
	}
	dst := make([]byte, 0, size)
	for _, c := range components {
		dst = AppendElement(dst, c)
	}
	return dst
}

// Normalize returns the value in its stored form: sets and maps, at any depth, in the
// order of their keys and without duplicates, of which the first counts. v must be
// valid for t; it is returned itself if nothing changes.
func Normalize(t *Type, v []byte) []byte {
	if v == nil || !t.containsSetOrMap() {
		return v
	}
	switch t.Kind {
	case List, Set:
		elems := make([][]byte, 0, Count(v))
		for e := range Elements(v) {
			elems = append(elems, Normalize(t.Elem, e))
		}
		if t.Kind == Set {
			slices.SortStableFunc(elems, t.Elem.Compare)
			elems = slices.CompactFunc(elems, func(a, b []byte) bool { return t.Elem.Compare(a, b) == 0 })
		}
		return BuildCollection(elems...)
	case Map:
		type pair struct{ k, v []byte }
		pairs := make([]pair, 0, Count(v))
		for k, e := range Pairs(v) {
			pairs = append(pairs, pair{Normalize(t.Key, k), Normalize(t.Elem, e)})
		}
		slices.SortStableFunc(pairs, func(a, b pair) int { return t.Key.Compare(a.k, b.k) })
		pairs = slices.CompactFunc(pairs, func(a, b pair) bool { return t.Key.Compare(a.k, b.k) == 0 })
		dst := binary.BigEndian.AppendUint32(make([]byte, 0, len(v)), uint32(len(pairs)))
		for _, p := range pairs {
			dst = AppendElement(AppendElement(dst, p.k), p.v)
		}
		return dst
	case Tuple:
		dst := make([]byte, 0, len(v))
		for i, e := range Components(v) {
			if i < len(t.Fields) {
				e = Normalize(t.Fields[i], e)
			}
			dst = AppendElement(dst, e)
		}
		return dst
	}
	return v
}
