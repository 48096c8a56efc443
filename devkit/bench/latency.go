package bench

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
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

// newHistogram returns a histogram with a precision of a thousandth, from a microsecond
// on.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, maxLatency.Microseconds(), 3)
}

func record(h *hdrhistogram.Histogram, d time.Duration) {
	_ = h.RecordValue(min(max(d, time.Microsecond), maxLatency).Microseconds()) // clamped to its bounds
}

func latencyOf(h *hdrhistogram.Histogram) Latency {
	ms := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / 1000 }
	return Latency{P50: ms(50), P95: ms(95), P99: ms(99), P999: ms(99.9), Max: float64(h.Max()) / 1000}
}

// Latencies collects durations. It is not safe for concurrent use.
type Latencies struct{ h *hdrhistogram.Histogram }

// NewLatencies returns an empty collection.
func NewLatencies() *Latencies { return &Latencies{newHistogram()} }

// Add adds a duration.
func (l *Latencies) Add(d time.Duration) { record(l.h, d) }

// Latency returns the distribution.
func (l *Latencies) Latency() Latency { return latencyOf(l.h) }
