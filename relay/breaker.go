package relay

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sony/gobreaker/v2"
)

// BreakerState is the state of the circuit breaker before the broker.
type BreakerState uint8

// The states. Closed publishes; open sends nothing; half-open sends a few
// probes, which decide.
const (
	BreakerClosed BreakerState = iota
	BreakerHalfOpen
	BreakerOpen
)

// String is the state as metrics and logs spell it.
func (s BreakerState) String() string {
	switch s {
	case BreakerHalfOpen:
		return "half-open"
	case BreakerOpen:
		return "open"
	default:
		return "closed"
	}
}

func breakerStateOf(s gobreaker.State) BreakerState {
	switch s {
	case gobreaker.StateOpen:
		return BreakerOpen
	case gobreaker.StateHalfOpen:
		return BreakerHalfOpen
	default:
		return BreakerClosed
	}
}

// BreakerStatus is what the breaker is doing and why.
type BreakerStatus struct {
	State BreakerState
	// Since is when it came into this state; zero if it was never in another.
	Since time.Time
	// Cause is why it opened last, also while it is half-open; nil once it is closed.
	Cause error
}

var (
	// errNoAnswer is the failure of an attempt that the broker did not answer in time.
	errNoAnswer = errors.New("the broker has not acknowledged in time")
	// errMerged ends a call that is part of another one now. It counts neither
	// as a success nor as a failure.
	errMerged = errors.New("counted with another call")
)

// breaker decides whether anything is sent to the broker. It opens after
// Config.BreakerFailures failures in a row, or at a share of failures of
// BreakerRate among at least BreakerMinCalls calls of the last BreakerWindow.
// After BreakerOpen it is half-open: BreakerProbes calls are let through; when
// all succeed it closes, when one fails it opens again.
//
// What a call is, calls.go says. The publisher's lock guards it.
type breaker struct {
	cb      *gobreaker.TwoStepCircuitBreaker[struct{}]
	log     *slog.Logger
	metrics *metrics
	status  BreakerStatus
	failure error // of the last call that failed
	// moved says that the state changed and that the publisher has not
	// answered to it yet.
	moved bool
}

func newBreaker(cfg *Config, m *metrics) *breaker {
	b := &breaker{log: cfg.Logger, metrics: m}
	b.cb = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:         cfg.shardName(),
		MaxRequests:  uint32(cfg.BreakerProbes),
		Interval:     cfg.BreakerWindow,
		BucketPeriod: max(cfg.BreakerWindow/60, time.Millisecond),
		Timeout:      cfg.BreakerOpen,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			calls := c.TotalSuccesses + c.TotalFailures
			return c.ConsecutiveFailures >= uint32(cfg.BreakerFailures) ||
				calls >= uint32(cfg.BreakerMinCalls) && float64(c.TotalFailures) >= cfg.BreakerRate*float64(calls)
		},
		IsExcluded:    func(err error) bool { return errors.Is(err, errMerged) },
		OnStateChange: func(_ string, _, to gobreaker.State) { b.change(breakerStateOf(to)) },
	})
	m.breakerState(BreakerClosed)
	return b
}

// allow asks to make a call; done tells what came of it, once.
func (b *breaker) allow() (done func(error), err error) {
	d, err := b.cb.Allow()
	if err != nil {
		return nil, fmt.Errorf("the breaker is %s: %w", b.status.State, err)
	}
	return func(err error) {
		if err != nil && !errors.Is(err, errMerged) {
			b.failure = err
			b.metrics.breakerFailures.Inc()
		}
		d(err)
	}, nil
}

// look lets time pass: an open breaker becomes half-open by it.
func (b *breaker) look() BreakerState {
	b.cb.State()
	return b.status.State
}

// change is called by gobreaker, inside of allow, done and look.
func (b *breaker) change(to BreakerState) {
	from := b.status
	b.status.State, b.status.Since = to, time.Now()
	b.moved = true
	b.metrics.breakerState(to)
	b.metrics.breakerChanges.WithLabelValues(to.String()).Inc()
	switch to {
	case BreakerOpen:
		b.status.Cause = b.failure
		b.log.Warn("breaker opens: nothing is sent to the broker", "from", from.State, "cause", b.failure)
	case BreakerHalfOpen:
		b.log.Info("breaker is half-open: a few events probe the broker", "open_for", b.status.Since.Sub(from.Since), "cause", from.Cause)
	default:
		b.status.Cause = nil
		b.log.Info("breaker closes: events are sent again", "cause_was", from.Cause)
	}
}

// reopensIn is how long an open breaker stays so at most.
func (b *breaker) reopensIn(open time.Duration) time.Duration {
	return max(open-time.Since(b.status.Since), 0) + time.Millisecond
}

// causeOrOpen is why the breaker is open.
func (b *breaker) causeOrOpen() error {
	if b.status.Cause != nil {
		return b.status.Cause
	}
	return gobreaker.ErrOpenState
}
