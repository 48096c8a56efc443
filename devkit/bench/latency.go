package bench

import (
	"math"
	"math/bits"
	"time"
)

// maxLatency is the largest value of a histogram.
const maxLatency = 10 * time.Minute

// Latency is a distribution, in milliseconds.
type Latency struct {
	P50  float64 `json:"p50"`
	P95  float64 `json:"p95"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99_9"`
	Max  float64 `json:"max"`
}

// histogram counts durations with a precision of a thousandth, from a microsecond on.
// Prometheus' histograms are ten per cent wide, which is too much for a comparison.
type histogram struct {
	counts [21 << subBits]int64 // by bucketOf
	total  int64
	max    int64 // microseconds
}

// subBits are the binary digits of a value that its bucket keeps, after the first one.
const subBits = 10

// bucketFor returns the bucket of a value in microseconds: the value itself below 2048, then
// 1024 buckets for each power of two.
func bucketFor(micros int64) int {
	shift := max(0, bits.Len64(uint64(micros))-subBits-1)
	return shift<<subBits + int(micros>>shift)
}

// bucketMax returns the largest value of a bucket.
func bucketMax(bucket int) int64 {
	shift := max(0, bucket>>subBits-1)
	return int64(bucket-shift<<subBits+1)<<shift - 1
}

func newHistogram() *histogram { return new(histogram) }

func record(h *histogram, d time.Duration) {
	micros := min(max(d, time.Microsecond), maxLatency).Microseconds()
	h.counts[bucketFor(micros)]++
	h.total++
	h.max = max(h.max, micros)
}

// quantile returns the value in microseconds that a share of the durations does not exceed.
func (h *histogram) quantile(share float64) int64 {
	rank := int64(math.Ceil(share * float64(h.total)))
	for i, n := range h.counts[:] {
		if rank -= n; rank <= 0 && n > 0 {
			return min(bucketMax(i), h.max)
		}
	}
	return h.max
}

func newLatency(h *histogram) Latency {
	ms := func(share float64) float64 { return float64(h.quantile(share)) / 1000 }
	return Latency{P50: ms(.5), P95: ms(.95), P99: ms(.99), P999: ms(.999), Max: float64(h.max) / 1000}
}

// Latencies collects durations. It is not safe for concurrent use.
type Latencies struct{ h *histogram }

// NewLatencies returns an empty collection.
func NewLatencies() *Latencies { return &Latencies{newHistogram()} }

// Add adds a duration.
func (l *Latencies) Add(d time.Duration) { record(l.h, d) }

// Latency returns the distribution.
func (l *Latencies) Latency() Latency { return newLatency(l.h) }
