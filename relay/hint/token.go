package hint

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/gocql/gocql"
)

// Token is the token of an aggregate's partition of an outbox table: that of
// Cassandra's Murmur3Partitioner for a key of one uuid column.
func Token(aggregate gocql.UUID) int64 {
	// murmur3 x64 128 of exactly one block, with seed 0; the token is the first half.
	const c1, c2 = 0x87c37b91114253d5, 0x4cf5ad432745937f
	k1 := binary.LittleEndian.Uint64(aggregate[:8])
	k2 := binary.LittleEndian.Uint64(aggregate[8:])
	h1 := bits.RotateLeft64(k1*c1, 31) * c2
	h1 = bits.RotateLeft64(h1, 27)*5 + 0x52dce729
	h2 := bits.RotateLeft64(k2*c2, 33) * c1
	h2 = (bits.RotateLeft64(h2, 31)+h1)*5 + 0x38495ab5
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

func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
