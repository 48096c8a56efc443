package store

import "encoding/binary"

// reader parses a record. After the first malformed part it is bad and returns zeros;
// callers check once, at the end.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.bad = true
		return 0
	}
	c := r.b[0]
	r.b = r.b[1:]
	return c
}

func (r *reader) uvarint() uint64 {
	if len(r.b) > 0 && r.b[0] < 0x80 {
		v := uint64(r.b[0])
		r.b = r.b[1:]
		return v
	}
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	u := r.uvarint()
	return int64(u>>1) ^ -int64(u&1)
}

func (r *reader) fixed64() int64 {
	if len(r.b) < 8 {
		r.fail()
		return 0
	}
	v := binary.LittleEndian.Uint64(r.b)
	r.b = r.b[8:]
	return int64(v)
}

// count reads the number of the items that follow, each of at least one byte.
func (r *reader) count() int {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.fail()
		return 0
	}
	return int(n)
}

// take reads n bytes. The result is part of the record, and never nil.
func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) bytes() []byte { return r.take(r.uvarint()) }

// value reads one of the values that appendValues wrote.
func (r *reader) value() []byte {
	n := r.uvarint()
	if n == 0 {
		return nil
	}
	return r.take(n - 1)
}

func (r *reader) fail() { r.b, r.bad = nil, true }

// rowHeader is the beginning of a row record.
type rowHeader struct {
	base
	flags   byte
	deleted tomb
	marker  Cell // if flags has rowMarker
}

func (r *reader) rowHeader() (h rowHeader) {
	h.flags = r.byte()
	if h.flags&isPartition != 0 {
		r.fail()
		return h
	}
	h.ts = r.fixed64()
	if h.flags&rowBaseTTL != 0 {
		h.ttl, h.expiry = int32(r.uvarint()), r.varint()
	}
	h.deleted = noTomb
	if h.flags&rowDeleted != 0 {
		h.deleted = r.tomb(h.ts)
	}
	if h.flags&rowMarker != 0 {
		r.cell(&h.marker, r.byte(), &h.base)
	}
	return h
}

func (r *reader) tomb(baseTS int64) tomb {
	return tomb{ts: baseTS + r.varint(), at: r.varint()}
}

// cell reads the part of a cell after its flags, without its value, into a c with any
// content.
func (r *reader) cell(c *Cell, flags byte, b *base) {
	c.Timestamp, c.Dead, c.Value = b.ts, flags&cellDead != 0, nil
	switch flags & (cellDead | cellTTL | cellBaseTTL | cellTime) {
	case cellBaseTTL: // most cells of a CDC log
		c.TTL, c.Expiry = b.ttl, b.expiry
		return
	case 0: // most others
		c.TTL, c.Expiry = 0, 0
		return
	}
	if flags&cellTime != 0 {
		c.Timestamp += r.varint()
	}
	switch {
	case c.Dead:
		c.TTL, c.Expiry = 0, r.varint()
	case flags&cellBaseTTL != 0:
		c.TTL, c.Expiry = b.ttl, b.expiry
	case flags&cellTTL != 0:
		c.TTL, c.Expiry = int32(r.uvarint()), r.varint()
	default:
		c.TTL, c.Expiry = 0, 0
	}
}

// fullCell reads the part of a cell after its flags, the value included.
func (r *reader) fullCell(c *Cell, flags byte, b *base) {
	r.cell(c, flags, b)
	if !c.Dead {
		c.Value = r.bytes()
	}
}
