package cqltype

import (
	"bytes"
	"cmp"
	"encoding/binary"
)

// reference compares values by their types, where Compare compares encodings.
func reference(t *Type, a, b []byte) int {
	if len(a) == 0 || len(b) == 0 {
		return referenceEmpty(t, a, b)
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

func referenceEmpty(t *Type, a, b []byte) int {
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
		if c := reference(elem, x, y); c != 0 {
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
		if c := reference(of, x, y); c != 0 {
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
		if c := reference(fields[i], x, y); c != 0 {
			return c
		}
	}
	return 0
}

func compareVarint(a, b []byte) int {
	a, b = trimVarint(a), trimVarint(b)
	negA, negB := a[0]&0x80 != 0, b[0]&0x80 != 0
	switch {
	case negA && !negB:
		return -1
	case negB && !negA:
		return 1
	case len(a) != len(b):
		if negA {
			return cmp.Compare(len(b), len(a))
		}
		return cmp.Compare(len(a), len(b))
	}
	return bytes.Compare(a, b)
}

func compareDecimal(a, b []byte) int {
	x, y := normalizeDecimal(a), normalizeDecimal(b)
	if c := cmp.Compare(x.sign, y.sign); c != 0 {
		return c
	}
	c := cmp.Compare(x.exponent, y.exponent)
	if c == 0 {
		c = bytes.Compare(x.digits, y.digits)
	}
	return c * x.sign
}
