package cqltype

import (
	"bytes"
	"encoding/binary"
)

// IsOrdered reports whether the order of values of t is known here. Values of other types are
// no clustering keys, elements of sets and keys of maps, and are compared for equality only,
// by their bytes.
func (t *Type) IsOrdered() bool {
	switch t.Kind {
	case Float, Double, Varint, Decimal, Duration, List, Set, Map, Tuple:
		return false
	}
	return true
}

// Compare orders two values as ScyllaDB orders clustering keys and elements: null
// first, then the empty value, then by type. It returns -1, 0 or 1.
//
// timeuuid compares by its 60-bit time, then by the low eight bytes as signed ones;
// uuid by version, then for version 1 by time and unsigned bytes, else by all bytes.
// Values of types that are not ordered compare by their bytes. Both values must be
// valid for t.
func (t *Type) Compare(a, b []byte) int {
	var x, y [64]byte // usually enough
	return bytes.Compare(appendKey(x[:0], t, a), appendKey(y[:0], t, b))
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
