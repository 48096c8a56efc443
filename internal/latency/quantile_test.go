package latency

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Quantiles cover the observations since the previous reading, to the width of a bucket, of one
// histogram or of several together.
func TestCounts(t *testing.T) {
	t.Parallel()
	h := prometheus.NewHistogram(Opts("x_seconds", "X.", prometheus.ExponentialBuckets(0.001, 2, 10)))
	var last Counts
	read := func(quantiles ...float64) []time.Duration {
		now := ReadCounts(h)
		fresh := now.Since(last)
		last = now
		return fresh.Quantiles(quantiles...)
	}
	if got := read(.5); got != nil {
		t.Errorf("without observations: %v", got)
	}
	for i := range 1000 {
		h.Observe(float64(i+1) / 1000 * 0.512) // evenly up to the last bound
	}
	for i, got := range read(.25, .5, .99) {
		want := []time.Duration{128, 256, 507}[i] * time.Millisecond
		if d := (got - want).Abs(); d > 5*time.Millisecond {
			t.Errorf("quantile %d is %s, want %s", i, got, want)
		}
	}
	if got := read(.5); got != nil {
		t.Errorf("after the reading: %v", got)
	}
	h.Observe(0.0005)
	if got := read(.5, 1); len(got) != 2 || got[0] != 500*time.Microsecond || got[1] != time.Millisecond {
		t.Errorf("of one observation: %v", got)
	}
	Observe(h, 1000*time.Second, prometheus.Labels{"trace_id": "7"})
	if got := read(.5); len(got) != 1 || got[0] != 512*time.Millisecond {
		t.Errorf("beyond the last bound: %v", got)
	}
	some := Counts{Bounds: []float64{1, 2}, Cumulative: []uint64{3, 4, 4}}
	if got := some.Plus(Counts{Bounds: []float64{1, 2}, Cumulative: []uint64{0, 4, 5}}); got.All() != 9 || got.Cumulative[1] != 8 {
		t.Errorf("both together: %+v", got)
	}
	if got := some.Plus(Counts{}).Plus(Counts{Bounds: []float64{1}, Cumulative: []uint64{7, 7}}); got.All() != 4 {
		t.Errorf("with another's buckets: %+v", got)
	}
	// A process that began again counts from 0.
	if got := some.Since(Counts{Bounds: []float64{1, 2}, Cumulative: []uint64{3, 4, 5}}); got.All() != 4 {
		t.Errorf("after a reset: %+v", got)
	}
}
