package cqltype

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
)

// Compare orders two values as ScyllaDB orders clustering keys and elements: null
// first, then the empty value, then by type. It returns -1, 0 or 1.
//
// timeuuid compares by its 60-bit time, then by the low eight bytes as signed ones;
// uuid by version, then for version 1 by time and unsigned bytes, else by all bytes;
// NaN is the largest float and -0 less than 0; a tuple equals one that has only more
// nulls at its end. Both values must be valid for t.
func (t *Type) Compare(a, b []byte) int {
	if len(a) == 0 || len(b) == 0 {
		return t.compareEmpty(a, b)
	}
	switch t.Kind {
	case Int:
		if len(a) == 4 && len(b) == 4 {
			return cmp.Compare(int32(binary.BigEndian.Uint32(a)), int32(binary.BigEndian.Uint32(b)))
		}
	case BigInt, Timestamp, Time:
		if len(a) == 8 && len(b) == 8 {
			return cmp.Compare(int64(binary.BigEndian.Uint64(a)), int64(binary.BigEndian.Uint64(b)))
		}
	case SmallInt:
		if len(a) == 2 && len(b) == 2 {
			return cmp.Compare(int16(binary.BigEndian.Uint16(a)), int16(binary.BigEndian.Uint16(b)))
		}
	case TinyInt:
		return cmp.Compare(int8(a[0]), int8(b[0]))
	case Boolean:
		return cmp.Compare(boolByte(a[0]), boolByte(b[0]))
	case TimeUUID:
		if len(a) == 16 && len(b) == 16 {
			return compareTimeUUID(a, b)
		}
	case UUID:
		if len(a) == 16 && len(b) == 16 {
			return compareUUID(a, b)
		}
	case Float:
		if len(a) == 4 && len(b) == 4 {
			return cmp.Compare(floatOrder(a), floatOrder(b))
		}
	case Double:
		if len(a) == 8 && len(b) == 8 {
			return cmp.Compare(doubleOrder(a), doubleOrder(b))
		}
	case Varint:
		return compareVarint(a, b)
	case Decimal:
		return compareDecimal(a, b)
	case List, Set:
		return compareList(t.Elem, a, b)
	case Map:
		return compareMap(t, a, b)
	case Tuple:
		return compareTuple(t.Fields, a, b)
	}
	return bytes.Compare(a, b)
}

// compareEmpty compares when at least one of the values has no bytes.
func (t *Type) compareEmpty(a, b []byte) int {
	switch {
	case a == nil || b == nil:
		return cmp.Compare(boolInt(a != nil), boolInt(b != nil))
	case t.Kind == Tuple:
		return compareTuple(t.Fields, a, b)
	}
	return cmp.Compare(boolInt(len(a) > 0), boolInt(len(b) > 0))
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func boolByte(b byte) byte {
	if b != 0 {
		return 1
	}
	return 0
}

// uuidTime returns the 60-bit time of a version 1 uuid.
func uuidTime(v []byte) uint64 {
	hi := binary.BigEndian.Uint64(v)
	return hi>>32 | hi>>16&0xffff<<32 | hi&0x0fff<<48
}

// signFlip converts the order of signed bytes, or of one signed number, to that of
// unsigned ones.
const signFlip = 0x8080808080808080

func compareTimeUUID(a, b []byte) int {
	if c := cmp.Compare(uuidTime(a), uuidTime(b)); c != 0 {
		return c
	}
	return cmp.Compare(binary.BigEndian.Uint64(a[8:])^signFlip, binary.BigEndian.Uint64(b[8:])^signFlip)
}

func compareUUID(a, b []byte) int {
	if c := cmp.Compare(a[6]>>4, b[6]>>4); c != 0 {
		return c
	}
	if a[6]>>4 == 1 {
		if c := cmp.Compare(uuidTime(a), uuidTime(b)); c != 0 {
			return c
		}
		return bytes.Compare(a[8:], b[8:])
	}
	return bytes.Compare(a, b)
}

// floatOrder maps a float to a number that orders like it; all NaNs are one.
func floatOrder(v []byte) uint32 {
	u := binary.BigEndian.Uint32(v)
	if f := math.Float32frombits(u); f != f {
		return math.MaxUint32
	}
	if u>>31 != 0 {
		return ^u
	}
	return u | 1<<31
}

func doubleOrder(v []byte) uint64 {
	u := binary.BigEndian.Uint64(v)
	if f := math.Float64frombits(u); f != f {
		return math.MaxUint64
	}
	if u>>63 != 0 {
		return ^u
	}
	return u | 1<<63
}

func compareList(elem *Type, a, b []byte) int {
	na, nb := Count(a), Count(b)
	ra, rb := skip4(a), skip4(b)
	for range min(na, nb) {
		var x, y []byte
		var ok bool
		if x, ra, ok = readElement(ra); !ok {
			break
		}
		if y, rb, ok = readElement(rb); !ok {
			break
		}
		if c := elem.Compare(x, y); c != 0 {
			return c
		}
	}
	return cmp.Compare(na, nb)
}

func compareMap(t *Type, a, b []byte) int {
	na, nb := Count(a), Count(b)
	ra, rb := skip4(a), skip4(b)
	for i := range 2 * min(na, nb) {
		var x, y []byte
		var ok bool
		if x, ra, ok = readElement(ra); !ok {
			break
		}
		if y, rb, ok = readElement(rb); !ok {
			break
		}
		of := t.Key
		if i%2 == 1 {
			of = t.Elem
		}
		if c := of.Compare(x, y); c != 0 {
			return c
		}
	}
	return cmp.Compare(na, nb)
}

func skip4(v []byte) []byte { return v[min(4, len(v)):] }

func compareTuple(fields []*Type, a, b []byte) int {
	for i := range fields {
		var x, y []byte
		var ok bool
		if len(a) == 0 && len(b) == 0 {
			return 0
		}
		if len(a) > 0 {
			if x, a, ok = readElement(a); !ok {
				a = nil
			}
		}
		if len(b) > 0 {
			if y, b, ok = readElement(b); !ok {
				b = nil
			}
		}
		if c := fields[i].Compare(x, y); c != 0 {
			return c
		}
	}
	return 0
}
