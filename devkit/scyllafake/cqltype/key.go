package cqltype

import (
	"bytes"
	"encoding/binary"
)

// The first byte of an encoded value. Inverted, for descending columns, they are 0xfe,
// 0xfd and 0xfc, so no encoding ever begins with 0x00 or 0xff: those two sort before
// and after all extensions of a key prefix.
const (
	keyNull  = 0x01
	keyEmpty = 0x02
	keyValue = 0x03
)

// AppendKey appends an encoding of v, by which Compare orders, reversed if desc. No encoding is a
// prefix of another, so the encodings of several columns can be concatenated. Equal values
// have equal encodings, so v cannot be decoded from it. The first byte is neither 0x00 nor
// 0xff. v must be valid for t.
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
