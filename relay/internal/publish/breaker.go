package publish

import (
	"errors"
	"fmt"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/circuit"
)

// BreakerState is the state of the circuit breaker before the broker.
type BreakerState = circuit.State

// The states: closed publishes, open sends nothing, half-open sends a few probes that
// decide the next state.
const (
	BreakerClosed   = circuit.Closed
	BreakerHalfOpen = circuit.HalfOpen
	BreakerOpen     = circuit.Open
)

// BreakerStatus is the state of the breaker and its reason.
type BreakerStatus = circuit.Status

var (
	// errNoAnswer is the error of an attempt that the broker did not answer in time.
	errNoAnswer = errors.New("the broker has not acknowledged in time")
	// errMerged ends a call that was merged into another one. It counts neither as a
	// success nor as a failure.
	errMerged = fmt.Errorf("counted with another call: %w", circuit.ErrUncounted)
)

// breaker is the circuit breaker of the broker. It opens after Config.BreakerFailures
// consecutive failures, or at a failure rate of BreakerRate among at least
// BreakerMinCalls calls of the last BreakerWindow. After BreakerOpen it is half-open and
// admits BreakerProbes calls: it closes when all succeed, and opens again when one fails.
//
// Type call defines the unit that it counts. Publisher.mu guards it.
type breaker struct {
	*circuit.Breaker
	status BreakerStatus
	// moved means that the state changed and the publisher has not handled it yet.
	moved bool
}

func newBreaker(cfg *Config, m *Metrics) *breaker {
	b := &breaker{}
	b.Breaker = circuit.New(circuit.Config{
		Failures: cfg.BreakerFailures, Window: cfg.BreakerWindow, Rate: cfg.BreakerRate, MinCalls: cfg.BreakerMinCalls,
		Open: cfg.BreakerOpen, Probes: cfg.BreakerProbes,
	}, cfg.Logger, m.Breaker, func(s BreakerStatus) { b.status, b.moved = s, true })
	return b
}

// reopensIn returns the time after which an open breaker is half-open.
func (b *breaker) reopensIn() time.Duration { return b.Left() + time.Millisecond }
