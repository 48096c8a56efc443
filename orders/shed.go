package orders

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Defaults of Load.
const (
	DefaultMaxInFlight = 256
	DefaultMaxWaiting  = 1024
	DefaultMaxWait     = time.Second
)

// Load bounds what the service does at once, so that more than it can do is
// refused at once instead of making everything late.
type Load struct {
	// MaxInFlight is how many requests may be with the database. Default 256.
	MaxInFlight int
	// MaxWaiting is how many more may wait for their turn. Default 1024; -1 lets none wait.
	MaxWaiting int
	// MaxWait is how long one may wait. Default 1 s.
	MaxWait time.Duration
}

func (l Load) withDefaults() Load {
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

func (l Load) validate() error {
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
	places  chan struct{}
	waiting atomic.Int64
}

func newRoom(cfg Load, m *metrics) *room {
	return &room{cfg: cfg, metrics: m, places: make(chan struct{}, cfg.MaxInFlight)}
}

// enter waits for a place; leave gives it back. The error is an *OverloadedError,
// or that of ctx. Who waits longest is next.
func (r *room) enter(ctx context.Context) (leave func(), err error) {
	select {
	case r.places <- struct{}{}:
		return r.leave, nil
	default:
	}
	if r.waiting.Add(1) > int64(max(r.cfg.MaxWaiting, 0)) {
		r.waiting.Add(-1)
		return nil, r.shed(shedFull)
	}
	defer r.waiting.Add(-1)
	ctx, cancel := context.WithTimeoutCause(ctx, r.cfg.MaxWait, errShed)
	defer cancel()
	select {
	case r.places <- struct{}{}:
		return r.leave, nil
	case <-ctx.Done():
		if err := context.Cause(ctx); !errors.Is(err, errShed) {
			return nil, err
		}
		return nil, r.shed(shedWaited)
	}
}

func (r *room) leave() { <-r.places }

func (r *room) shed(reason string) error {
	r.metrics.shed.WithLabelValues(reason).Inc()
	return &OverloadedError{RetryAfter: r.cfg.MaxWait}
}
