package cdclog

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestCDCTTL(t *testing.T) {
	t.Parallel()
	encode := func(pairs ...string) []byte {
		b := binary.LittleEndian.AppendUint32(nil, uint32(len(pairs)/2))
		for _, s := range pairs {
			b = append(binary.LittleEndian.AppendUint32(b, uint32(len(s))), s...)
		}
		return b
	}
	whole := encode("delta", "full", "enabled", "true", "ttl", "3600")
	cdcTTL := func(b []byte) (time.Duration, error) {
		var f TableInfo
		err := f.setOptions(b)
		return f.CDCTTL, err
	}
	if ttl, err := cdcTTL(whole); ttl != time.Hour || err != nil {
		t.Errorf("cdcTTL() = %s, %v, want 1h", ttl, err)
	}
	if ttl, err := cdcTTL(encode("ttl", "0")); ttl != 0 || err != nil {
		t.Errorf("cdcTTL(0) = %s, %v, want 0", ttl, err)
	}
	if ttl, err := cdcTTL(encode("enabled", "true")); ttl != defaultCDCTTL || err != nil {
		t.Errorf("cdcTTL() = %s, %v, want ScyllaDB's default", ttl, err)
	}
	for n := range len(whole) - 1 {
		if _, err := cdcTTL(whole[:n]); !errors.Is(err, ErrCDCOptions) {
			t.Errorf("cdcTTL() of %d bytes: error = %v, want errCDCOptions", n, err)
		}
	}
	if _, err := cdcTTL(encode("ttl", "soon")); !errors.Is(err, ErrCDCOptions) {
		t.Errorf("cdcTTL(soon) error = %v, want errCDCOptions", err)
	}
}

// A range contains the tokens for which FindPart returns it.
func TestTokenRanges(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, ranges := range []int{1, 2, 3, 7, 256, 1000} {
		last := int64(math.MinInt64)
		for n := range ranges {
			part := Ring.Part(n, ranges)
			after, upTo := part.After, part.UpTo
			if after != last || upTo <= after {
				t.Fatalf("range %d of %d is (%d, %d], the one before ends at %d", n, ranges, after, upTo, last)
			}
			last = upTo
			for _, token := range []int64{after + 1, upTo, after + 1 + int64(rnd.Uint64N(uint64(upTo)-uint64(after)))} {
				if got := Ring.FindPart(token, ranges); got != n {
					t.Errorf("PartOf(%d, %d) = %d, want %d", token, ranges, got, n)
				}
			}
		}
		if last != math.MaxInt64 {
			t.Errorf("%d ranges end at %d", ranges, last)
		}
	}
}
