package cqltype

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// Token is the Murmur3Partitioner's token of a serialised partition key: the
// first half of MurmurHash3 x64 128 with Cassandra's reading of the last
// bytes as signed. The smallest int64 is no token and becomes the largest.
func Token(key []byte) int64 {
	const (
		c1 = 0x87c37b91114253d5
		c2 = 0x4cf5ad432745937f
	)
	var h1, h2 uint64
	rest := key
	for len(rest) >= 16 {
		k1 := binary.LittleEndian.Uint64(rest)
		k2 := binary.LittleEndian.Uint64(rest[8:])
		rest = rest[16:]
		h1 ^= bits.RotateLeft64(k1*c1, 31) * c2
		h1 = (bits.RotateLeft64(h1, 27)+h2)*5 + 0x52dce729
		h2 ^= bits.RotateLeft64(k2*c2, 33) * c1
		h2 = (bits.RotateLeft64(h2, 31)+h1)*5 + 0x38495ab5
	}
	var k1, k2 uint64
	for i, b := range rest {
		// Cassandra sign-extends each byte before it shifts it into place.
		v := uint64(int64(int8(b)))
		if i < 8 {
			k1 ^= v << (8 * i)
		} else {
			k2 ^= v << (8 * (i - 8))
		}
	}
	if len(rest) > 8 {
		h2 ^= bits.RotateLeft64(k2*c2, 33) * c1
	}
	if len(rest) > 0 {
		h1 ^= bits.RotateLeft64(k1*c1, 31) * c2
	}
	h1 ^= uint64(len(key))
	h2 ^= uint64(len(key))
	h1 += h2
	h2 += h1
	h1 = fmix(h1) + fmix(h2)
	if t := int64(h1); t != math.MinInt64 {
		return t
	}
	return math.MaxInt64
}

func fmix(n uint64) uint64 {
	n ^= n >> 33
	n *= 0xff51afd7ed558ccd
	n ^= n >> 33
	n *= 0xc4ceb9fe1a85ec53
	return n ^ n>>33
}
