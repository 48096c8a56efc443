package cqltype

import (
	"bytes"
	"encoding/binary"
	"math/big"
)

// EncodeVarint serialises n as the shortest two's complement, the form of varint and of
// the unscaled part of a decimal.
func EncodeVarint(n *big.Int) []byte {
	switch n.Sign() {
	case 0:
		return []byte{0}
	case 1:
		b := n.Bytes()
		if b[0]&0x80 != 0 {
			b = append([]byte{0}, b...)
		}
		return b
	}
	// -n-1 has the bits of n inverted.
	b := new(big.Int).Not(n).Bytes()
	for i := range b {
		b[i] = ^b[i]
	}
	if len(b) == 0 || b[0]&0x80 == 0 {
		b = append([]byte{0xff}, b...)
	}
	return b
}

// DecodeVarint decodes a two's complement of any length; no bytes are 0.
func DecodeVarint(v []byte) *big.Int {
	n := new(big.Int).SetBytes(v)
	if len(v) > 0 && v[0]&0x80 != 0 {
		n.Sub(n, new(big.Int).Lsh(big.NewInt(1), uint(len(v))*8))
	}
	return n
}

// EncodeDecimal serialises unscaled × 10^-scale.
func EncodeDecimal(unscaled *big.Int, scale int32) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(scale)), EncodeVarint(unscaled)...)
}

// DecodeDecimal is the reverse of EncodeDecimal; fewer than four bytes are 0.
func DecodeDecimal(v []byte) (unscaled *big.Int, scale int32) {
	if len(v) < 4 {
		return new(big.Int), 0
	}
	return DecodeVarint(v[4:]), int32(binary.BigEndian.Uint32(v))
}

// trimVarint drops the leading bytes that only repeat the sign.
func trimVarint(v []byte) []byte {
	for len(v) > 1 && (v[0] == 0 && v[1] < 0x80 || v[0] == 0xff && v[1] >= 0x80) {
		v = v[1:]
	}
	return v
}

// normalDecimal is a decimal as sign × 0.digits × 10^exponent, digits without zeros at
// either end. It is ordered without expanding the exponent, which may be any 32-bit
// number.
type normalDecimal struct {
	sign     int
	exponent int64
	digits   []byte // '1'…'9' first and last; empty for 0
}

func normalizeDecimal(v []byte) normalDecimal {
	unscaled, scale := DecodeDecimal(v)
	if unscaled.Sign() == 0 {
		return normalDecimal{}
	}
	digits := new(big.Int).Abs(unscaled).Append(nil, 10)
	exponent := int64(len(digits)) - int64(scale)
	return normalDecimal{unscaled.Sign(), exponent, bytes.TrimRight(digits, "0")}
}
