package topology

import (
	"math"
	"math/bits"
)

// IgnoreMSB is the number of leading bits of a token that do not affect its shard:
// ScyllaDB's default of murmur3_partitioner_ignore_msb_bits.
const IgnoreMSB = 12

// ShardFor returns the shard, of so many, that owns a token.
func ShardFor(shards int, token int64) int {
	return shardFor(shards, unbias(token))
}

// unbias maps tokens to unsigned numbers in the same order.
func unbias(token int64) uint64 { return uint64(token) ^ 1<<63 }

func bias(n uint64) int64 { return int64(n ^ 1<<63) }

func shardFor(shards int, n uint64) int {
	hi, _ := bits.Mul64(n<<IgnoreMSB, uint64(shards))
	return int(hi)
}

// firstToken returns the first token in (start, end] that shard owns, or end when it
// owns none. The range wraps around when start is not below end (cdc/generation.cc
// find_first_token_for_shard).
func firstToken(shards, shard int, start, end int64) int64 {
	if start < end {
		return firstInRange(shards, shard, start, end)
	}
	if start != math.MaxInt64 {
		if t := firstInRange(shards, shard, start, math.MaxInt64); ShardFor(shards, t) == shard {
			return t
		}
	}
	return firstInRange(shards, shard, math.MinInt64, end)
}

func firstInRange(shards, shard int, start, end int64) int64 {
	n := unbias(start) + 1
	if shardFor(shards, n) != shard {
		var ok bool
		if n, ok = nextOfShard(shards, shard, n); !ok {
			return end
		}
	}
	return min(bias(n), end)
}

// nextOfShard returns the smallest number above n that belongs to shard. The numbers
// form 2^IgnoreMSB segments, and in each the shards come in turn.
func nextOfShard(shards, shard int, n uint64) (uint64, bool) {
	const segmentBits = 64 - IgnoreMSB
	// The beginning of the shard in a segment: ceil(shard·2^64/shards) / 2^IgnoreMSB,
	// rounded up.
	q, r := bits.Div64(uint64(shard), 0, uint64(shards))
	if r != 0 {
		q++
	}
	offset := q >> IgnoreMSB
	if q&(1<<IgnoreMSB-1) != 0 {
		offset++
	}
	segment := n >> segmentBits
	if next := segment<<segmentBits + offset; next > n {
		return next, true
	}
	if segment == 1<<IgnoreMSB-1 {
		return 0, false
	}
	return (segment+1)<<segmentBits + offset, true
}
