package store

import (
	"encoding/binary"
)

// A row record is
//
//	flags | base timestamp (8) | [base TTL, expiry] | [deletion] | [marker]
//	| clustering values | number of columns | columns
//
// Timestamps are kept as differences to the base. A flag marks a cell that has the
// base's timestamp and TTL, as most have. A column is the difference of its id to that
// of the previous one, and either one cell or a collection: [deletion], number of
// elements, and path and cell of each.
const (
	rowDeleted byte = 1 << iota
	rowMarker
	rowBaseTTL

	// crowded marks, on records of either sort, that many operands were merged to read
	// this one, so that it is worth writing back.
	crowded byte = 0x40
	// isPartition distinguishes a partition record from a row's.
	isPartition byte = 0x80
)

const (
	cellDead    byte = 1 << iota
	cellTTL          // has a TTL of its own
	cellBaseTTL      // has the base's
	cellTime         // has a timestamp of its own
	cellComplex
	cellDeleted // complex: has a collection tombstone
)

// base contains the values that most cells of a record share.
type base struct {
	ts     int64
	ttl    int32
	expiry int64
}

// appendValues appends a list of values; nil and empty stay distinct.
func appendValues(dst []byte, values [][]byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(values)))
	for _, v := range values {
		if v == nil {
			dst = append(dst, 0)
			continue
		}
		dst = binary.AppendUvarint(dst, uint64(len(v))+1)
		dst = append(dst, v...)
	}
	return dst
}

func appendBytes(dst, v []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(v))), v...)
}

// appendTo encodes a reconciled delta.
func (d *delta) appendTo(dst []byte) []byte {
	b := d.base()
	var flags byte
	if b.ttl != 0 {
		flags |= rowBaseTTL
	}
	if d.deleted.set() {
		flags |= rowDeleted
	}
	if d.hasMarker {
		flags |= rowMarker
	}
	dst = append(dst, flags)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(b.ts))
	if b.ttl != 0 {
		dst = binary.AppendUvarint(dst, uint64(b.ttl))
		dst = binary.AppendVarint(dst, b.expiry)
	}
	if d.deleted.set() {
		dst = b.appendTomb(dst, d.deleted)
	}
	if d.hasMarker {
		dst = b.appendCell(dst, &d.marker, false)
	}
	dst = append(dst, d.clustering...)
	return d.appendColumns(dst, b)
}

func (d *delta) appendColumns(dst []byte, b base) []byte {
	dst = binary.AppendUvarint(dst, uint64(d.countColumns()))
	var last int32
	tombs, entries := d.tombs, d.entries
	for len(entries) > 0 || len(tombs) > 0 {
		// A tombstone comes with the elements of its column, or alone.
		var id int32
		hasTomb := len(tombs) > 0 && (len(entries) == 0 || tombs[0].id <= entries[0].id)
		if hasTomb {
			id = tombs[0].id
		} else {
			id = entries[0].id
		}
		dst = binary.AppendVarint(dst, int64(id-last))
		last = id
		if !hasTomb && !entries[0].complex {
			dst = b.appendCell(dst, &entries[0].Cell, true)
			entries = entries[1:]
			continue
		}
		n := 0
		for n < len(entries) && entries[n].id == id && entries[n].complex {
			n++
		}
		if hasTomb {
			dst = append(dst, cellComplex|cellDeleted)
			dst = b.appendTomb(dst, tombs[0].tomb)
			tombs = tombs[1:]
		} else {
			dst = append(dst, cellComplex)
		}
		dst = binary.AppendUvarint(dst, uint64(n))
		for i := range entries[:n] {
			dst = appendBytes(dst, entries[i].path)
			dst = b.appendCell(dst, &entries[i].Cell, true)
		}
		entries = entries[n:]
	}
	return dst
}

func (d *delta) countColumns() int {
	n := len(d.tombs)
	ti := 0
	for i := range d.entries {
		e := &d.entries[i]
		if !e.complex {
			n++
			continue
		}
		if i > 0 && d.entries[i-1].complex && d.entries[i-1].id == e.id {
			continue
		}
		for ti < len(d.tombs) && d.tombs[ti].id < e.id {
			ti++
		}
		if ti == len(d.tombs) || d.tombs[ti].id != e.id {
			n++
		}
	}
	return n
}

// base selects the timestamp and the TTL that most cells probably share.
func (d *delta) base() base {
	switch {
	case d.hasMarker:
		return newBase(&d.marker)
	case len(d.entries) > 0:
		return newBase(&d.entries[0].Cell)
	case d.deleted.set():
		return base{ts: d.deleted.ts}
	case len(d.tombs) > 0:
		return base{ts: d.tombs[0].ts}
	}
	return base{}
}

func newBase(c *Cell) base {
	if c.Dead {
		return base{ts: c.Timestamp} // its Expiry is not an expiry
	}
	return base{c.Timestamp, c.TTL, c.Expiry}
}

// appendTomb appends a deletion. The difference of two timestamps may overflow; it
// wraps, and wraps back on reading.
func (b base) appendTomb(dst []byte, t tomb) []byte {
	dst = binary.AppendVarint(dst, t.ts-b.ts)
	return binary.AppendVarint(dst, t.at)
}

func (b base) appendCell(dst []byte, c *Cell, withValue bool) []byte {
	var flags byte
	if c.Timestamp != b.ts {
		flags |= cellTime
	}
	switch {
	case c.Dead:
		flags |= cellDead
	case c.TTL == 0:
	case c.TTL == b.ttl && c.Expiry == b.expiry:
		flags |= cellBaseTTL
	default:
		flags |= cellTTL
	}
	dst = append(dst, flags)
	if flags&cellTime != 0 {
		dst = binary.AppendVarint(dst, c.Timestamp-b.ts)
	}
	switch {
	case c.Dead:
		return binary.AppendVarint(dst, c.Expiry) // and no value
	case flags&cellTTL != 0:
		dst = binary.AppendUvarint(dst, uint64(c.TTL))
		dst = binary.AppendVarint(dst, c.Expiry)
	}
	if withValue {
		dst = appendBytes(dst, c.Value)
	}
	return dst
}
