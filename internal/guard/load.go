package guard

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// Defaults of Load.
const (
	DefaultMaxInFlight = 256
	DefaultMaxWaiting  = 1024
	DefaultMaxWait     = time.Second
)

// Load limits the concurrency of a service, so that requests beyond its capacity are
// refused immediately instead of delaying all others. It counts places: one for each
// write that a request makes concurrently.
type Load struct {
	// MaxInFlight is the number of places at the database. Default 256.
	MaxInFlight int
	// MaxWaiting is the number of places that may be waited for. Default 1024; -1
	// allows none.
	MaxWaiting int
	// MaxWait is how long a request may wait. Default 1 s.
	MaxWait time.Duration
}

// WithDefaults returns l with its zero fields set.
func (l Load) WithDefaults() Load {
	if l.MaxInFlight == 0 {
		l.MaxInFlight = DefaultMaxInFlight
	}
	if l.MaxWaiting == 0 {
		l.MaxWaiting = DefaultMaxWaiting
	}
	if l.MaxWait == 0 {
		l.MaxWait = DefaultMaxWait
	}
	return l
}

// Validate returns an error if a field of l, which has its defaults, is invalid.
func (l Load) Validate() error {
	if l.MaxInFlight < 1 || l.MaxWaiting < -1 || l.MaxWait <= 0 {
		return fmt.Errorf("load %+v: requests in flight and the wait must be positive, those waiting at least -1", l)
	}
	return nil
}

// OverloadedError means that there was no room for the request. Nothing was done.
type OverloadedError struct {
	// RetryAfter is the delay after which a retry makes sense.
	RetryAfter time.Duration
}

// Error implements error.
func (*OverloadedError) Error() string { return "too many concurrent requests" }

// Reasons for which requests are shed, in the label reason.
const (
	shedFull   = "queue_full"
	shedWaited = "waited_too_long"
)

// errShed ends the wait of a request.
var errShed = errors.New("waited too long")

// room contains the places at the database and the queue before them.
type room struct {
	cfg     Load
	metrics *metrics
	places  *semaphore.Weighted
	// taken and waiting count places.
	taken, waiting atomic.Int64
}

func newRoom(cfg Load, m *metrics) *room {
	return &room{cfg: cfg, metrics: m, places: semaphore.NewWeighted(int64(cfg.MaxInFlight))}
}

// enter implements Guard.Enter.
func (r *room) enter(ctx context.Context, want int) (int, func(), error) {
	places := int64(max(1, min(want, r.cfg.MaxInFlight/2)))
	if !r.places.TryAcquire(places) {
		if err := r.wait(ctx, places); err != nil {
			return 0, nil, err
		}
	}
	r.taken.Add(places)
	return int(places), func() {
		r.taken.Add(-places)
		r.places.Release(places)
	}, nil
}

// full implements Guard.Full.
func (r *room) full() error {
	if r.taken.Load() < int64(r.cfg.MaxInFlight) || r.waiting.Load() < int64(max(r.cfg.MaxWaiting, 0)) {
		return nil
	}
	return r.shed(shedFull)
}

func (r *room) wait(ctx context.Context, places int64) error {
	defer r.waiting.Add(-places)
	if r.waiting.Add(places) > int64(max(r.cfg.MaxWaiting, 0)) {
		return r.shed(shedFull)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, r.cfg.MaxWait, errShed)
	defer cancel()
	if r.places.Acquire(ctx, places) == nil {
		return nil
	}
	if err := context.Cause(ctx); !errors.Is(err, errShed) {
		return err
	}
	return r.shed(shedWaited)
}

func (r *room) shed(reason string) error {
	r.metrics.shed.WithLabelValues(reason).Inc()
	return &OverloadedError{RetryAfter: r.cfg.MaxWait}
}
