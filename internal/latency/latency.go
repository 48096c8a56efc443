// Package latency defines the histograms of latencies: classic buckets for every scraper and
// dashboard, a native histogram beside them, and exemplars with the trace of an observation.
package latency

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// bucketFactor bounds the width of the buckets of native histograms: an error of less
	// than 10 % at any quantile.
	bucketFactor = 1.1
	// maxBuckets bounds the memory of a native histogram. At the bound, buckets are merged
	// or, after minReset, removed.
	maxBuckets = 160
	minReset   = time.Hour
)

// Opts returns the options of a histogram of latencies with the classic buckets, in seconds.
func Opts(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: bucketFactor, NativeHistogramMaxBucketNumber: maxBuckets, NativeHistogramMinResetDuration: minReset,
	}
}

// Requests returns the histogram of the requests to an API, which its label api names, such as
// orders. All APIs have one name and the same buckets, so that one query compares them.
func Requests(api string) *prometheus.HistogramVec {
	opts := Opts("outbox_http_request_duration_seconds", "Duration of HTTP requests, by API, operation and status code; with the time that receive waits, and streams until they end.",
		[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30})
	opts.ConstLabels = prometheus.Labels{"api": api}
	return prometheus.NewHistogramVec(opts, []string{"operation", "code"})
}

// Observe adds a latency to a histogram, with an exemplar unless its labels are nil.
func Observe(o prometheus.Observer, d time.Duration, exemplar prometheus.Labels) {
	if with, ok := o.(prometheus.ExemplarObserver); ok && exemplar != nil {
		with.ObserveWithExemplar(d.Seconds(), exemplar)
		return
	}
	o.Observe(d.Seconds())
}
