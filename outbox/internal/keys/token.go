package keys

import (
	"encoding/binary"
	"math"
	mathbits "math/bits"

	"github.com/gocql/gocql"
)

// UUIDToken returns the token of a partition with a key of one uuid column: that of
// Cassandra's Murmur3Partitioner.
func UUIDToken(aggregate gocql.UUID) int64 {
	// murmur3 x64 128 of exactly one block, with seed 0; the token is the first half.
	const c1, c2 = 0x87c37b91114253d5, 0x4cf5ad432745937f
	k1 := binary.LittleEndian.Uint64(aggregate[:8])
	k2 := binary.LittleEndian.Uint64(aggregate[8:])
	h1 := mathbits.RotateLeft64(k1*c1, 31) * c2
	h1 = mathbits.RotateLeft64(h1, 27)*5 + 0x52dce729
	h2 := mathbits.RotateLeft64(k2*c2, 33) * c1
	h2 = (mathbits.RotateLeft64(h2, 31)+h1)*5 + 0x38495ab5
	h1 ^= 16
	h2 ^= 16
	h1 += h2
	h2 += h1
	h1, h2 = mix(h1), mix(h2)
	if t := int64(h1 + h2); t != math.MinInt64 {
		return t
	}
	return math.MaxInt64 // the least is no partition's
}

// Token returns the token of a partition with a key of one column: that of
// Murmur3Partitioner for the CQL value of the column. It does not allocate.
func Token[T ~string | ~[]byte](key T) int64 {
	const c1, c2 = 0x87c37b91114253d5, 0x4cf5ad432745937f
	block := func(at, n int) (k uint64) {
		for i := n - 1; i >= 0; i-- {
			k = k<<8 | uint64(key[at+i])
		}
		return k
	}
	var h1, h2 uint64
	at := 0
	for ; len(key)-at >= 16; at += 16 {
		k1, k2 := block(at, 8), block(at+8, 8)
		h1 ^= mathbits.RotateLeft64(k1*c1, 31) * c2
		h1 = (mathbits.RotateLeft64(h1, 27)+h2)*5 + 0x52dce729
		h2 ^= mathbits.RotateLeft64(k2*c2, 33) * c1
		h2 = (mathbits.RotateLeft64(h2, 31)+h1)*5 + 0x38495ab5
	}
	// Cassandra sign-extends the remaining bytes, unlike murmur3.
	var k [2]uint64
	for i := range len(key) - at {
		k[i/8] ^= uint64(int64(int8(key[at+i]))) << (8 * (i % 8))
	}
	h2 ^= mathbits.RotateLeft64(k[1]*c2, 33) * c1
	h1 ^= mathbits.RotateLeft64(k[0]*c1, 31) * c2
	h1 ^= uint64(len(key))
	h2 ^= uint64(len(key))
	h1 += h2
	h2 += h1
	if t := int64(mix(h1) + mix(h2)); t != math.MinInt64 {
		return t
	}
	return math.MaxInt64 // the least is no partition's
}

func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
