package store

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sort"
)

// A partition record is
//
//	isPartition | deletion | number of segments | for each: lo, hi, deletion
//
// with the deletion's timestamp never (as the difference to 0) where there is none.

// segment is a deleted range of rows.
type segment struct {
	interval
	tomb
}

// partitionRecord contains the tombstones of a partition and of ranges of it.
type partitionRecord struct {
	deleted tomb
	// segments are sorted and do not overlap. Adjacent segments differ, so that equal
	// deletions have equal records.
	segments []segment
}

func (p *partitionRecord) reset() {
	clear(p.segments)
	p.deleted, p.segments = noTomb, p.segments[:0]
}

func (p *partitionRecord) empty() bool { return !p.deleted.set() && len(p.segments) == 0 }

// add adds another record, to which p then refers, and reports whether it is well
// formed. After several, p must be reconciled.
func (p *partitionRecord) add(record []byte) bool {
	r := reader{b: record}
	if r.byte()&^crowded != isPartition {
		return false
	}
	p.deleted = p.deleted.max(r.tomb(0))
	for n := r.count(); n > 0 && !r.bad; n-- {
		p.segments = append(p.segments, segment{interval{r.bytes(), r.bytes()}, r.tomb(0)})
	}
	return !r.bad
}

func (p *partitionRecord) appendTo(dst []byte) []byte {
	var b base
	dst = b.appendTomb(append(dst, isPartition), p.deleted)
	dst = binary.AppendUvarint(dst, uint64(len(p.segments)))
	for _, s := range p.segments {
		dst = appendBytes(appendBytes(dst, s.lo), s.hi)
		dst = b.appendTomb(dst, s.tomb)
	}
	return dst
}

// reconcile makes overlapping segments disjoint; each place keeps the strongest
// deletion over it.
func (p *partitionRecord) reconcile() {
	if len(p.segments) > 0 {
		p.segments = flatten(p.segments)
	}
	p.segments = slices.DeleteFunc(p.segments, func(s segment) bool { return s.ts <= p.deleted.ts })
}

// flatten halves the list until it is trivial and overlays the halves, so that the many
// operands of a partition with repeated range deletions cost n log n.
func flatten(s []segment) []segment {
	if len(s) == 1 {
		if s[0].empty() {
			return nil
		}
		return s
	}
	return overlay(flatten(s[:len(s)/2:len(s)/2]), flatten(s[len(s)/2:]))
}

// overlay merges two lists of disjoint sorted segments.
func overlay(a, b []segment) []segment {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 {
		return a
	}
	out := make([]segment, 0, len(a)+len(b)+1)
	emit := func(s segment) {
		if n := len(out); n > 0 && out[n-1].tomb == s.tomb && bytes.Equal(out[n-1].hi, s.lo) {
			out[n-1].hi = s.hi
			return
		}
		out = append(out, s)
	}
	a, b = slices.Clone(a), slices.Clone(b) // their heads are cut below
	for len(a) > 0 && len(b) > 0 {
		if bytes.Compare(a[0].lo, b[0].lo) > 0 {
			a, b = b, a
		}
		x, y := &a[0], &b[0] // x begins first
		switch {
		case bytes.Compare(x.hi, y.lo) <= 0:
			emit(*x)
			a = a[1:]
		case !bytes.Equal(x.lo, y.lo):
			emit(segment{interval{x.lo, y.lo}, x.tomb})
			x.lo = y.lo
		default:
			hi := x.hi
			if bytes.Compare(y.hi, hi) < 0 {
				hi = y.hi
			}
			emit(segment{interval{x.lo, hi}, x.tomb.max(y.tomb)})
			x.lo, y.lo = hi, hi
			if x.empty() {
				a = a[1:]
			}
			if y.empty() {
				b = b[1:]
			}
		}
	}
	for _, s := range append(a, b...) {
		emit(s)
	}
	return out
}

// covering returns the deletion over the row with this key (kind and clustering).
func (p *partitionRecord) covering(row []byte) tomb {
	if len(p.segments) == 0 {
		return p.deleted
	}
	i := sort.Search(len(p.segments), func(i int) bool { return bytes.Compare(row, p.segments[i].hi) < 0 })
	if i < len(p.segments) && bytes.Compare(p.segments[i].lo, row) <= 0 {
		return p.deleted.max(p.segments[i].tomb)
	}
	return p.deleted
}
