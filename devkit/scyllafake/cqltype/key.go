package cqltype

import (
	"bytes"
	"encoding/binary"
)

// The first byte of an encoded value. Inverted, for descending columns, they are 0xfe,
// 0xfd and 0xfc, so no encoding ever begins with 0x00 or 0xff: those two sort before
// and after all extensions of a key prefix.
const (
	keyEnd   = 0x00 // no more elements, inside a collection or tuple
	keyNull  = 0x01
	keyEmpty = 0x02
	keyValue = 0x03
)

// AppendKey appends an encoding of v, by which Compare orders, reversed if desc. No encoding is a prefix of another, so the encodings of several columns can
// be concatenated. Equal values have equal encodings, so v cannot be decoded from it.
// The first byte is neither 0x00 nor 0xff. v must be valid for t.
func AppendKey(dst []byte, t *Type, v []byte, desc bool) []byte {
	start := len(dst)
	dst = appendKey(dst, t, v)
	if desc {
		for i := start; i < len(dst); i++ {
			dst[i] = ^dst[i]
		}
	}
	return dst
}

func appendKey(dst []byte, t *Type, v []byte) []byte {
	if v == nil || !t.IsCollection() && t.Kind != Tuple || len(v) == 0 && t.Kind != Tuple {
		return appendScalarKey(dst, t, v)
	}
	dst = append(dst, keyValue)
	switch t.Kind {
	case List, Set:
		for e := range Elements(v) {
			dst = appendKey(dst, t.Elem, e)
		}
		return append(dst, keyEnd)
	case Map:
		for k, e := range Pairs(v) {
			dst = appendKey(appendKey(dst, t.Key, k), t.Elem, e)
		}
		return append(dst, keyEnd)
	}
	return appendTupleKey(dst, t.Fields, v)
}

// appendScalarKey is appendKey for types that are neither collections nor tuples.
func appendScalarKey(dst []byte, t *Type, v []byte) []byte {
	if v == nil {
		return append(dst, keyNull)
	}
	if len(v) == 0 {
		return append(dst, keyEmpty)
	}
	dst = append(dst, keyValue)
	be := binary.BigEndian
	switch t.Kind {
	case TinyInt, SmallInt, Int, BigInt, Timestamp, Time:
		dst = append(dst, v...)
		dst[len(dst)-len(v)] ^= 0x80 // the sign
		return dst
	case Boolean:
		return append(dst, boolByte(v[0]))
	case Date:
		return append(dst, v...)
	case TimeUUID:
		dst = be.AppendUint64(dst, uuidTime(v))
		return be.AppendUint64(dst, be.Uint64(v[8:])^signFlip)
	case UUID:
		dst = append(dst, v[6]>>4)
		if v[6]>>4 == 1 {
			dst = be.AppendUint64(dst, uuidTime(v))
			return append(dst, v[8:]...)
		}
		return append(dst, v...)
	case Float:
		return be.AppendUint32(dst, floatOrder(v))
	case Double:
		return be.AppendUint64(dst, doubleOrder(v))
	case Varint:
		return appendVarintKey(dst, v)
	case Decimal:
		return appendDecimalKey(dst, v)
	}
	return appendBytesKey(dst, v)
}

// appendBytesKey ends the bytes with 00 01 and escapes a zero in them as 00 ff.
func appendBytesKey(dst, v []byte) []byte {
	for {
		i := bytes.IndexByte(v, 0)
		if i < 0 {
			return append(append(dst, v...), 0, 1)
		}
		dst = append(append(dst, v[:i]...), 0, 0xff)
		v = v[i+1:]
	}
}

// appendVarintKey writes sign, length and bytes, so that a longer number is the larger
// one, or the smaller one when negative.
func appendVarintKey(dst, v []byte) []byte {
	v = trimVarint(v)
	n := uint32(len(v))
	if v[0]&0x80 != 0 {
		dst = append(dst, 0)
		n = ^n
	} else {
		dst = append(dst, 1)
	}
	return append(binary.BigEndian.AppendUint32(dst, n), v...)
}

// appendDecimalKey writes sign, exponent and digits, inverted when negative.
func appendDecimalKey(dst, v []byte) []byte {
	d := normalizeDecimal(v)
	dst = append(dst, byte(d.sign+1))
	if d.sign == 0 {
		return dst
	}
	start := len(dst)
	dst = binary.BigEndian.AppendUint64(dst, uint64(d.exponent)^1<<63)
	dst = append(append(dst, d.digits...), 0)
	if d.sign < 0 {
		for i := start; i < len(dst); i++ {
			dst[i] = ^dst[i]
		}
	}
	return dst
}

// appendTupleKey omits the nulls at the end, which do not count.
func appendTupleKey(dst []byte, fields []*Type, v []byte) []byte {
	keep := len(dst)
	for i, c := range Components(v) {
		if i >= len(fields) {
			break
		}
		dst = appendKey(dst, fields[i], c)
		if c != nil {
			keep = len(dst)
		}
	}
	return append(dst[:keep], keyEnd)
}
