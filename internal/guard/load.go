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

// Load bounds what a service does at once, so that more than it can do is
// refused at once instead of making everything late. It counts places: one for
// each write that a request makes at the same time.
type Load struct {
	// MaxInFlight is how many may be with the database. Default 256.
	MaxInFlight int
	// MaxWaiting is how many more may wait for their turn. Default 1024; -1 lets none wait.
	MaxWaiting int
	// MaxWait is how long one may wait. Default 1 s.
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

// Validate says what is wrong with l, which has its defaults.
func (l Load) Validate() error {
	if l.MaxInFlight < 1 || l.MaxWaiting < -1 || l.MaxWait <= 0 {
		return fmt.Errorf("load %+v: requests in flight and the wait must be positive, those waiting at least -1", l)
	}
	return nil
}

// OverloadedError says that there was no room for the request. Nothing was done.
type OverloadedError struct {
	// RetryAfter is when asking again makes sense.
	RetryAfter time.Duration
}

// Error says that there is too much to do.
func (*OverloadedError) Error() string { return "too many requests at once" }

// Why requests are shed, as the label reason has it.
const (
	shedFull   = "queue_full"
	shedWaited = "waited_too_long"
)

// errShed ends the wait of a request.
var errShed = errors.New("waited too long")

// room is the places at the database and those in the queue before it.
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

// enter is Guard.Enter.
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

// full is Guard.Full.
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
