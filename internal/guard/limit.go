package guard

import (
	"math"
	"time"
)

const (
	// firstLimit is the limit before anything is measured.
	firstLimit = 32
	// minLimit and maxLimit bound the limit. The upper bound limits the memory of requests
	// in progress.
	minLimit, maxLimit = 4, 1024
	// target is the queueing time that is acceptable, as in CoDel: half of it at the
	// database, where a queue lets the driver and the database process several statements
	// together, and half before the limit. Of a slow database it is half of its latency
	// each.
	target = 5 * time.Millisecond
	// maxDecrease is the factor by which one window decreases the limit at most.
	maxDecrease = 0.5
	// smoothing is the share of a window's result in the new limit.
	smoothing = 0.5

	// A window has at least windowCalls calls and lasts at least windowTime, and twice
	// the latency.
	windowCalls = 10
	windowTime  = 25 * time.Millisecond
	// probeEvery is the time between probes under load, but at least probeWindows
	// windows, so that probes take less than 2 % of the time.
	probeEvery   = 5 * time.Second
	probeWindows = 50
	// probeShare is the share of the limit that a probe uses. It is less than the share
	// at which the database has a queue.
	probeShare = 0.25
)

// limit is how many calls of the database may be in progress: enough to use all of its
// capacity, and so few that they do not queue there. It compares the mean latency of
// short windows with a base, the latency without a queue:
//
//   - While the queueing time, latency minus base, is acceptable, the limit increases by
//     half of its square root; otherwise it decreases by the ratio of acceptable to
//     measured latency. This is the gradient of Netflix's concurrency-limits.
//   - The base is measured while few calls are in progress. Under constant load there
//     is no such time, and a base that followed the measured latency would rise with
//     the queue. So the limit is reduced for one window, as BBR's ProbeRTT does: every
//     few seconds, and as soon as the limit has halved.
//   - A limit that is not used does not change: nothing is known about it.
//
// It has no lock; see Limiter.
type limit struct {
	places   float64
	min, max float64
	base     time.Duration // 0 before the first window
	recent   time.Duration // mean latency of the last window; 0 before the first

	window struct {
		began time.Time // zero while a probe waits for earlier calls
		calls int
		total time.Duration
		peak  int // maximum number of places taken
	}
	probe struct {
		active bool
		ended  time.Time
		places float64 // the limit when the last probe ended
	}
}

func newLimit(low, high int, now time.Time) *limit {
	l := &limit{min: float64(low), max: float64(high)}
	l.places = min(max(firstLimit, l.min), l.max)
	l.probe.places, l.probe.ended = l.places, now
	l.window.began = now
	return l
}

// now returns the current limit.
func (l *limit) now() int {
	if l.probe.active {
		return max(1, int(l.places*probeShare))
	}
	return int(l.places)
}

// took records that so many places are taken. It must be called after each change.
func (l *limit) took(places int, now time.Time) {
	l.window.peak = max(l.window.peak, places)
	if l.window.began.IsZero() && places <= l.now() {
		l.window.began = now
	}
}

// observe records the latency of a call that began at start; taken is the number of
// places taken.
func (l *limit) observe(start time.Time, latency time.Duration, now time.Time, taken int) {
	w := &l.window
	if w.began.IsZero() || l.probe.active && start.Before(w.began) {
		return // it queued with the calls before the probe
	}
	w.calls++
	w.total += latency
	mean := w.total / time.Duration(w.calls)
	if w.calls < windowCalls || now.Sub(w.began) < max(windowTime, 2*mean) {
		return
	}
	l.close(mean, now)
	l.took(taken, now)
}

// acceptable returns the acceptable queueing time for a latency.
func acceptable(latency time.Duration) time.Duration { return max(target/2, latency/2) }

// close ends a window with a mean latency.
func (l *limit) close(mean time.Duration, now time.Time) {
	w, p := &l.window, &l.probe
	lasted, peak := now.Sub(w.began), float64(w.peak)
	w.began, w.calls, w.total, w.peak = now, 0, 0, 0
	if p.active {
		p.active, p.ended, p.places = false, now, l.places
		l.base = mean
		return
	}
	l.recent = mean
	switch {
	case l.base == 0 || mean < l.base:
		l.base = mean
	case peak <= l.places*probeShare:
		l.base += (mean - l.base) / 2
	}
	if peak < l.places/2 || l.min == l.max {
		return
	}
	gradient := min(max(float64(l.base+acceptable(l.base))/float64(mean), maxDecrease), 1)
	next := l.places*gradient + math.Sqrt(l.places)/2
	l.places = min(max(l.places+(next-l.places)*smoothing, l.min), l.max)
	if now.Sub(p.ended) >= max(probeEvery, probeWindows*lasted) || l.places < p.places/2 {
		p.active, w.began = true, time.Time{}
	}
}
