// Package circuit is the circuit breaker of the product: of the broker (relay) and of
// the database (internal/guard). It wraps gobreaker and adds the reason of a state, log
// messages and metrics.
//
// A closed breaker allows every call. An open one allows none. A half-open one allows a
// few probes, whose results close it or open it again. The user of a breaker decides
// what a call is and which failures count.
package circuit

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"
)

// State is the state of a breaker. Metrics, logs and APIs contain its String.
type State = gobreaker.State

// The states.
const (
	Closed   = gobreaker.StateClosed
	HalfOpen = gobreaker.StateHalfOpen
	Open     = gobreaker.StateOpen
)

var (
	// ErrProbing is the error of Allow while a half-open breaker awaits its probes.
	ErrProbing = gobreaker.ErrTooManyRequests
	// ErrUncounted is the result of a call that is neither a success nor a failure.
	ErrUncounted = errors.New("not counted")
)

// Config defines when a breaker opens and when it allows calls again.
type Config struct {
	// Failures in a row open it. Default 10; positive.
	Failures int
	// Window, Rate and MinCalls: a share of failures of Rate or more among at
	// least MinCalls calls of the last Window opens it. Defaults 60 s, 0.5 and 20.
	Window   time.Duration
	Rate     float64
	MinCalls int
	// Open is how long the breaker stays open before calls may probe. Default 5 s.
	Open time.Duration
	// Probes is the number of calls that a half-open breaker allows: as many successes
	// close it, one failure opens it again. Default 3.
	Probes int
}

// WithDefaults returns c with its zero fields set.
func (c Config) WithDefaults() Config {
	c.Failures = cmp.Or(c.Failures, 10)
	c.Window = cmp.Or(c.Window, time.Minute)
	c.Rate = cmp.Or(c.Rate, 0.5)
	c.MinCalls = cmp.Or(c.MinCalls, 20)
	c.Open = cmp.Or(c.Open, 5*time.Second)
	c.Probes = cmp.Or(c.Probes, 3)
	return c
}

// Validate returns an error if a field of c, which has its defaults, is invalid.
func (c Config) Validate() error {
	if c.Failures < 1 || c.Window <= 0 || c.Rate <= 0 || c.Rate > 1 || c.MinCalls < 1 || c.Open <= 0 || c.Probes < 1 {
		return fmt.Errorf("breaker %+v: all must be positive and the rate at most 1", c)
	}
	return nil
}

// Status is the state of a breaker and its reason.
type Status struct {
	State State
	// Since is the time of the last change of state; zero if there was none.
	Since time.Time
	// Opened is the time since when it is not closed: probes do not change it. Zero while it
	// is closed.
	Opened time.Time
	// Cause is the failure that opened the breaker, also while it is half-open; nil
	// once it is closed.
	Cause error
}

// Why returns why no call is allowed: the cause, if it is known.
func (s Status) Why() error {
	if s.Cause == nil {
		return gobreaker.ErrOpenState
	}
	return s.Cause
}

// Breaker decides whether calls are made. It is safe for concurrent use.
type Breaker struct {
	cb      *gobreaker.TwoStepCircuitBreaker[struct{}]
	open    time.Duration
	log     *slog.Logger
	metrics *Metrics
	changed func(Status)

	mu struct {
		sync.Mutex
		status  Status
		failure error // of the last call that failed
	}
}

// New returns a closed breaker. changed, unless nil, is called with each change of
// state, from Allow, Look and the results of calls; it must call none of them.
func New(cfg Config, log *slog.Logger, m *Metrics, changed func(Status)) *Breaker {
	b := &Breaker{open: cfg.Open, log: log, metrics: m, changed: changed}
	b.cb = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:  uint32(cfg.Probes),
		Interval:     cfg.Window,
		BucketPeriod: max(cfg.Window/60, time.Millisecond),
		Timeout:      cfg.Open,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			calls := c.TotalSuccesses + c.TotalFailures
			return c.ConsecutiveFailures >= uint32(cfg.Failures) ||
				calls >= uint32(cfg.MinCalls) && float64(c.TotalFailures) >= cfg.Rate*float64(calls)
		},
		IsExcluded:    func(err error) bool { return errors.Is(err, ErrUncounted) },
		OnStateChange: func(_ string, from, to State) { b.change(from, to) },
	})
	return b
}

// Allow requests permission for a call; done takes the result of the call, once.
func (b *Breaker) Allow() (done func(error), err error) {
	d, err := b.cb.Allow()
	if err != nil {
		return nil, err
	}
	return func(err error) {
		if err != nil && !errors.Is(err, ErrUncounted) {
			b.mu.Lock()
			b.mu.failure = err
			b.mu.Unlock()
			b.metrics.Failures.Inc()
		}
		d(err)
	}, nil
}

// Look returns the current state. An open breaker becomes half-open when its time has
// passed.
func (b *Breaker) Look() Status {
	b.cb.State()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.status
}

// Left returns how long the breaker stays open, 0 if it is not open.
func (b *Breaker) Left() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.status.State != Open {
		return 0
	}
	return max(b.open-time.Since(b.mu.status.Since), 0)
}

// change is called by gobreaker, inside of Allow, Look and the results of calls.
func (b *Breaker) change(from, to State) {
	b.mu.Lock()
	was := b.mu.status
	now := Status{State: to, Since: time.Now(), Opened: was.Opened, Cause: was.Cause}
	if now.Opened.IsZero() {
		now.Opened = now.Since
	}
	switch to {
	case Open:
		now.Cause = b.mu.failure
	case Closed:
		now.Opened, now.Cause = time.Time{}, nil
	}
	b.mu.status = now
	b.mu.Unlock()
	b.metrics.set(to)
	b.metrics.Changes.WithLabelValues(to.String()).Inc()
	switch to {
	case Open:
		b.log.Warn("breaker opened", "before", b.metrics.target, "from", from.String(), "for", b.open, "cause", now.Cause)
	case HalfOpen:
		b.log.Info("breaker half-open", "before", b.metrics.target, "open_for", now.Since.Sub(was.Since).Round(time.Millisecond), "cause", now.Cause)
	default:
		b.log.Info("breaker closed", "before", b.metrics.target, "cause_was", was.Cause)
	}
	if b.changed != nil {
		b.changed(now)
	}
}
