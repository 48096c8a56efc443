package catalog

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// CDCPartitioner is the partitioner of CDC log tables: the token of a
// partition is the first half of its stream id.
const CDCPartitioner = "com.scylladb.dht.CDCPartitioner"

// MinToken is below every token of a partition.
const MinToken int64 = math.MinInt64

// Token returns the token of a serialised partition key under the table's partitioner.
func (t *Table) Token(key []byte) int64 {
	if t.Options.Partitioner == CDCPartitioner {
		return cdcToken(key)
	}
	return Murmur3Token(key)
}

// cdcToken returns the first 8 bytes of a stream id, big endian; a key that is not a
// stream id has the minimum token (ScyllaDB cdc/cdc_partitioner.cc).
func cdcToken(key []byte) int64 {
	if len(key) != 16 {
		return MinToken
	}
	return int64(binary.BigEndian.Uint64(key))
}

// Murmur3Token returns the token of a partition key as Murmur3Partitioner computes it:
// the first half of a 128-bit murmur3 hash with Cassandra's sign extension of the tail
// bytes; the minimum is mapped to the maximum.
func Murmur3Token(key []byte) int64 {
	const c1, c2 = 0x87c37b91114253d5, 0x4cf5ad432745937f
	var h1, h2 uint64
	tail := key
	for ; len(tail) >= 16; tail = tail[16:] {
		k1 := binary.LittleEndian.Uint64(tail)
		k2 := binary.LittleEndian.Uint64(tail[8:])

		h1 ^= bits.RotateLeft64(k1*c1, 31) * c2
		h1 = (bits.RotateLeft64(h1, 27)+h2)*5 + 0x52dce729

		h2 ^= bits.RotateLeft64(k2*c2, 33) * c1
		h2 = (bits.RotateLeft64(h2, 31)+h1)*5 + 0x38495ab5
	}

	var k1, k2 uint64
	for i := len(tail) - 1; i >= 8; i-- {
		k2 ^= uint64(int64(int8(tail[i]))) << (8 * (i - 8))
	}
	for i := min(len(tail), 8) - 1; i >= 0; i-- {
		k1 ^= uint64(int64(int8(tail[i]))) << (8 * i)
	}
	h2 ^= bits.RotateLeft64(k2*c2, 33) * c1
	h1 ^= bits.RotateLeft64(k1*c1, 31) * c2

	h1 ^= uint64(len(key))
	h2 ^= uint64(len(key))
	h1 += h2
	h2 += h1
	h1 = fmix(h1) + fmix(h2)

	if token := int64(h1); token != math.MinInt64 {
		return token
	}
	return math.MaxInt64
}

func fmix(k uint64) uint64 {
	k ^= k >> 33
	k *= 0xff51afd7ed558ccd
	k ^= k >> 33
	k *= 0xc4ceb9fe1a85ec53
	return k ^ k>>33
}
