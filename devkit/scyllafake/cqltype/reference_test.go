package cqltype

import (
	"bytes"
	"cmp"
	"encoding/binary"
)

// reference compares values by their types, where Compare compares encodings.
func reference(t *Type, a, b []byte) int {
	if len(a) == 0 || len(b) == 0 {
		return referenceEmpty(a, b)
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
	}
	return bytes.Compare(a, b)
}

func referenceEmpty(a, b []byte) int {
	if a == nil || b == nil {
		return cmp.Compare(boolInt(a != nil), boolInt(b != nil))
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
