package latency

import (
	"math"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Counts are the numbers of observations of a histogram with classic buckets. The zero value
// has none.
type Counts struct {
	// Bounds are the upper bounds of the buckets in seconds, ascending.
	Bounds []float64 `json:"bounds" doc:"Upper bounds of the buckets in seconds"`
	// Cumulative are the observations up to each bound, and last all of them.
	Cumulative []uint64 `json:"cumulative" doc:"Observations up to each bound, and last all of them"`
}

// ReadCounts returns the counts of a histogram since its process began.
func ReadCounts(h prometheus.Histogram) (c Counts) {
	var m dto.Metric
	if h.Write(&m) != nil {
		return c
	}
	for _, b := range m.GetHistogram().GetBucket() {
		if math.IsInf(b.GetUpperBound(), 1) {
			continue // listed only if it has an exemplar
		}
		c.Bounds, c.Cumulative = append(c.Bounds, b.GetUpperBound()), append(c.Cumulative, b.GetCumulativeCount())
	}
	c.Cumulative = append(c.Cumulative, m.GetHistogram().GetSampleCount())
	return c
}

// All returns the number of observations.
func (c Counts) All() uint64 {
	if len(c.Cumulative) == 0 {
		return 0
	}
	return c.Cumulative[len(c.Cumulative)-1]
}

// Since returns the observations since an earlier reading of the same histogram: all of them if
// it was reset, as the library does when the native histogram is full.
func (c Counts) Since(before Counts) Counts {
	if !slices.Equal(c.Bounds, before.Bounds) || len(c.Cumulative) != len(before.Cumulative) || c.All() < before.All() {
		return c
	}
	out := Counts{Bounds: c.Bounds, Cumulative: slices.Clone(c.Cumulative)}
	for i := range out.Cumulative {
		out.Cumulative[i] -= before.Cumulative[i]
	}
	return out
}

// Plus returns the observations of both. Observations of a histogram with other buckets are left out.
func (c Counts) Plus(o Counts) Counts {
	switch {
	case c.All() == 0:
		return o
	case !slices.Equal(c.Bounds, o.Bounds) || len(c.Cumulative) != len(o.Cumulative):
		return c
	}
	out := Counts{Bounds: c.Bounds, Cumulative: slices.Clone(c.Cumulative)}
	for i := range out.Cumulative {
		out.Cumulative[i] += o.Cumulative[i]
	}
	return out
}

// Quantiles returns quantiles of the observations; nil if there are none. Within a bucket they
// are interpolated linearly as histogram_quantile of Prometheus does, and beyond the last one they
// are its bound.
func (c Counts) Quantiles(quantiles ...float64) []time.Duration {
	all := c.All()
	if all == 0 || len(c.Cumulative) != len(c.Bounds)+1 {
		return nil
	}
	out := make([]time.Duration, len(quantiles))
	for i, q := range quantiles {
		out[i] = time.Duration(quantile(c.Bounds, c.Cumulative, q*float64(all)) * float64(time.Second))
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
