package guard

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// maxWait is how long a request waits for places at most. It matters only if the
	// database suddenly stops answering: the queue is shorter.
	maxWait = time.Second
	// burstWait is the time within which a queue must drain. A queue that lasts longer
	// is a standing queue: it only adds latency.
	burstWait = 100 * time.Millisecond
	// maxQueue bounds the memory of waiting requests, in places.
	maxQueue = 1024
	// assumedLatency is the latency of the database before it is measured.
	assumedLatency = 5 * time.Millisecond
)

// Limiter bounds the concurrent work at a database by places, one for each write that a
// request makes concurrently. The number of places follows the latency of the database;
// see limit. It is safe for concurrent use.
//
// Requests without a place wait in a queue, in order of arrival, and further requests are
// refused immediately. The length of the queue depends on how long it has existed, as in
// CoDel: a burst may queue for the work that the database does in burstWait, so that it is
// served without a refusal; a queue that persists is limited to the acceptable queueing time.
type Limiter struct {
	metrics *limiterMetrics

	mu struct {
		sync.Mutex
		limit   *limit
		taken   int       // places
		waiting int       // places that waiters wait for
		queue   list.List // of *waiter
		// since is when the queue began or, without one, when it ended.
		since    time.Time
		standing bool
		refusals struct {
			lag  time.Duration // mean time that a request with places waits for a processor
			pace time.Duration // time between two refusals
			next time.Time     // when the next refusal may be sent
			patience
		}
	}
}

// waiter is a request in the queue.
type waiter struct {
	places  int
	ready   chan struct{} // closed, with the Limiter locked, when it has its places; nil if it never waited
	granted time.Time     // when it was closed
	queued  *list.Element // nil outside of the queue
}

// LimiterConfig configures a Limiter. The zero value is usable.
type LimiterConfig struct {
	// Registerer receives the metrics. Default: no metrics are registered.
	Registerer prometheus.Registerer
	// Min and Max bound the number of places, for tests. Default 4 and 1,024; equal
	// values fix the limit.
	Min, Max int
}

// NewLimiter returns a Limiter.
func NewLimiter(cfg LimiterConfig) (*Limiter, error) {
	if cfg.Min == 0 && cfg.Max == 0 {
		cfg.Min, cfg.Max = minLimit, maxLimit
	}
	if cfg.Min < 1 || cfg.Max < cfg.Min {
		return nil, fmt.Errorf("limiter: %d to %d places: use at least 1, and a maximum of at least the minimum", cfg.Min, cfg.Max)
	}
	now := time.Now()
	l := &Limiter{metrics: newLimiterMetrics()}
	l.mu.limit, l.mu.since = newLimit(cfg.Min, cfg.Max, now), now
	if err := l.metrics.register(cfg.Registerer, l); err != nil {
		return nil, fmt.Errorf("register limiter metrics: %w", err)
	}
	return l, nil
}

// Occupancy is the state of a Limiter, in places.
type Occupancy struct{ Limit, Taken, Waiting int }

// Occupancy returns the current state.
func (l *Limiter) Occupancy() Occupancy {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Occupancy{Limit: l.mu.limit.now(), Taken: l.mu.taken, Waiting: l.mu.waiting}
}

// OverloadedError means that there was no place for the request. Nothing was done.
type OverloadedError struct {
	// RetryAfter is the delay after which a retry makes sense.
	RetryAfter time.Duration
}

// Error implements error.
func (*OverloadedError) Error() string { return "too many concurrent requests" }

// retryAfter is the RetryAfter of an OverloadedError: a queue never lasts longer.
const retryAfter = time.Second

// Reasons for which requests are shed, in the label reason.
const (
	shedFull   = "queue_full"
	shedWaited = "waited_too_long"
)

// Full returns an *OverloadedError if Enter would return one immediately, so that
// nothing is spent on a request without a place. A nil result is no promise.
func (l *Limiter) Full() error {
	l.mu.Lock()
	full := l.mu.waiting >= l.queueLocked(time.Now())
	l.mu.Unlock()
	if full {
		return l.newRefusal(shedFull)
	}
	return nil
}

// Enter waits for places at the database; leave returns them and must be called once. A
// request for more than half of the places gets half, so that it never blocks all
// others; places is the number it has. The error is an *OverloadedError, after which
// nothing was done, or that of ctx. The longest waiter is next.
func (l *Limiter) Enter(ctx context.Context, want int) (places int, leave func(), err error) {
	w := l.enter(want)
	if w == nil {
		return 0, nil, l.newRefusal(shedFull)
	}
	if w.ready != nil {
		if err := l.wait(ctx, w); err != nil {
			return 0, nil, err
		}
	}
	return w.places, func() { l.leave(w.places) }, nil
}

// enter takes places or a position in the queue. It returns nil if the queue is full.
func (l *Limiter) enter(want int) *waiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &waiter{places: max(1, min(want, int(l.mu.limit.places)/2))}
	now := time.Now()
	if l.mu.queue.Len() == 0 && l.fitsLocked(w) {
		l.takeLocked(w, now)
		return w
	}
	l.mu.limit.took(max(l.mu.taken, l.mu.limit.now()), now)
	if l.mu.waiting >= l.queueLocked(now) {
		return nil
	}
	if l.mu.queue.Len() == 0 && !l.mu.standing {
		l.mu.since = now
	}
	w.ready, w.queued = make(chan struct{}), l.mu.queue.PushBack(w)
	l.mu.waiting += w.places
	return w
}

// wait waits until w has its places.
func (l *Limiter) wait(ctx context.Context, w *waiter) error {
	waited := time.NewTimer(maxWait)
	defer waited.Stop()
	var err error // of ctx
	select {
	case <-w.ready:
		l.recordLag(time.Since(w.granted))
		return nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-waited.C:
	}
	if !l.abandon(w) { // it got its places concurrently
		return nil
	}
	if err == nil {
		err = l.newRefusal(shedWaited)
	}
	return err
}

// abandon removes w from the queue; it returns false if w has its places.
func (l *Limiter) abandon(w *waiter) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.queued == nil {
		return false
	}
	l.removeLocked(w, time.Now())
	return true
}

// leave returns places, and gives them to the longest waiters.
func (l *Limiter) leave(places int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.mu.taken -= places
	l.mu.limit.took(l.mu.taken, now)
	for e := l.mu.queue.Front(); e != nil; e = l.mu.queue.Front() {
		w := e.Value.(*waiter) //nolint:forcetypeassert // the only type in the queue
		if !l.fitsLocked(w) {
			return
		}
		l.removeLocked(w, now)
		l.takeLocked(w, now)
		w.granted = now
		close(w.ready)
	}
}

// fitsLocked reports whether there are places for w. A request alone always fits, also
// after the limit has become less than its share.
func (l *Limiter) fitsLocked(w *waiter) bool {
	return l.mu.taken == 0 || l.mu.taken+w.places <= l.mu.limit.now()
}

func (l *Limiter) takeLocked(w *waiter, now time.Time) {
	l.mu.taken += w.places
	l.mu.limit.took(l.mu.taken, now)
}

func (l *Limiter) removeLocked(w *waiter, now time.Time) {
	l.mu.queue.Remove(w.queued)
	w.queued = nil
	l.mu.waiting -= w.places
	if l.mu.queue.Len() == 0 && l.mu.standing {
		l.mu.since = now
	}
}

// queueLocked returns the number of places that may be waited for: the number that the database serves
// in the permitted wait, at most maxQueue. A queue becomes a standing queue after burstWait, and the
// next one is a burst only if there was none for as long.
func (l *Limiter) queueLocked(now time.Time) int {
	if empty := l.mu.queue.Len() == 0; empty == l.mu.standing && now.Sub(l.mu.since) >= burstWait {
		l.mu.standing = !l.mu.standing
	}
	latency := l.mu.limit.recent
	if latency == 0 {
		latency = assumedLatency
	}
	wait := max(burstWait, latency)
	if l.mu.standing {
		wait = acceptable(latency)
	}
	return min(max(1, int(l.mu.limit.places*float64(wait)/float64(latency))), maxQueue)
}

// observe records the latency of a call.
func (l *Limiter) observe(start time.Time, latency time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.limit.observe(start, latency, time.Now(), l.mu.taken)
}

func (l *Limiter) newRefusal(reason string) error {
	l.metrics.shed.WithLabelValues(reason).Inc()
	return &OverloadedError{RetryAfter: retryAfter}
}
