package cqltype

import (
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

// EncodeDecimal serialises unscaled × 10^-scale.
func EncodeDecimal(unscaled *big.Int, scale int32) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(scale)), EncodeVarint(unscaled)...)
}
