package cqltype

import (
	"math"
	"math/bits"
)

func durationParts(v []byte) (parts [3]int64, ok bool) {
	for i := range parts {
		if parts[i], v, ok = readVInt(v); !ok {
			return parts, false
		}
	}
	return parts, true
}

// readVInt reads a zig-zag number whose first byte begins with as many ones as bytes follow.
func readVInt(b []byte) (n int64, rest []byte, ok bool) {
	if len(b) == 0 {
		return 0, nil, false
	}
	extra := bits.LeadingZeros8(^b[0])
	if len(b) < 1+extra {
		return 0, nil, false
	}
	u := uint64(b[0]) & (0xff >> extra)
	for _, c := range b[1 : 1+extra] {
		u = u<<8 | uint64(c)
	}
	return int64(u>>1) ^ -int64(u&1), b[1+extra:], true
}

func validateDuration(v []byte) error {
	if len(v) < 3 {
		return marshalErrorf("Expected at least 3 bytes for a duration, got %d", len(v))
	}
	p, ok := durationParts(v)
	if !ok {
		return marshalErrorf("Cannot deserialize duration")
	}
	for i, name := range []string{"months", "days"} {
		if p[i] < math.MinInt32 || p[i] > math.MaxInt32 {
			return marshalErrorf("The duration %s (%d) must be a 32 bit integer", name, p[i])
		}
	}
	if (p[0] < 0 || p[1] < 0 || p[2] < 0) && (p[0] > 0 || p[1] > 0 || p[2] > 0) {
		return marshalErrorf("The duration months, days, and nanoseconds must be all of the same sign (%d, %d, %d)", p[0], p[1], p[2])
	}
	return nil
}
