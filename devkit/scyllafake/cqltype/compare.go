package cqltype

import (
	"bytes"
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
	if t.IsCollection() || t.Kind == Tuple {
		return bytes.Compare(appendKey(nil, t, a), appendKey(nil, t, b))
	}
	var x, y [64]byte // usually enough
	return bytes.Compare(appendScalarKey(x[:0], t, a), appendScalarKey(y[:0], t, b))
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
