package latency

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Recent reads quantiles of the observations of a histogram since its previous reading. It
// is not safe for concurrent use.
type Recent struct {
	// Of is the histogram, with classic buckets in seconds.
	Of prometheus.Histogram

	counts []uint64 // cumulative, of the buckets and of all observations
}

// Read returns the quantiles of the observations since the previous call, or since the
// start; nil if there were none. Within a bucket they are interpolated linearly as
// histogram_quantile of Prometheus does, and beyond the last one they are its bound.
func (r *Recent) Read(quantiles ...float64) []time.Duration {
	var m dto.Metric
	if r.Of.Write(&m) != nil {
		return nil
	}
	h := m.GetHistogram()
	now := make([]uint64, 0, len(h.GetBucket())+1)
	bounds := make([]float64, 0, cap(now))
	for _, b := range h.GetBucket() {
		if math.IsInf(b.GetUpperBound(), 1) {
			continue // listed only if it has an exemplar
		}
		now, bounds = append(now, b.GetCumulativeCount()), append(bounds, b.GetUpperBound())
	}
	now = append(now, h.GetSampleCount())
	if n := len(r.counts); n > 0 && now[len(now)-1] < r.counts[n-1] {
		r.counts = nil // the native histogram was full, and the library has reset both
	}
	fresh := make([]uint64, len(now))
	for i := range now {
		fresh[i] = now[i]
		if i < len(r.counts) {
			fresh[i] -= r.counts[i]
		}
	}
	r.counts = now
	all := fresh[len(fresh)-1]
	if all == 0 {
		return nil
	}
	out := make([]time.Duration, len(quantiles))
	for i, q := range quantiles {
		out[i] = time.Duration(quantile(bounds, fresh, q*float64(all)) * float64(time.Second))
	}
	return out
}

// quantile returns the value of a rank from cumulative counts of buckets.
func quantile(bounds []float64, counts []uint64, rank float64) float64 {
	low, below := 0.0, uint64(0)
	for i, bound := range bounds {
		if n := counts[i]; float64(n) >= rank && n > below {
			return low + (bound-low)*(rank-float64(below))/float64(n-below)
		}
		low, below = bound, counts[i]
	}
	return low
}
