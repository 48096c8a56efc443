package publish

import (
	"errors"
	"fmt"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/circuit"
)

// BreakerState is the state of the circuit breaker before the broker.
type BreakerState = circuit.State

// The states. Closed publishes; open sends nothing; half-open sends a few
// probes, which decide.
const (
	BreakerClosed   = circuit.Closed
	BreakerHalfOpen = circuit.HalfOpen
	BreakerOpen     = circuit.Open
)

// BreakerStatus is the state of the breaker and its reason.
type BreakerStatus = circuit.Status

var (
	// errNoAnswer is the failure of an attempt that the broker did not answer in time.
	errNoAnswer = errors.New("the broker has not acknowledged in time")
	// errMerged ends a call that is part of another one now. It counts neither
	// as a success nor as a failure.
	errMerged = fmt.Errorf("counted with another call: %w", circuit.ErrUncounted)
)

// breaker decides whether anything is sent to the broker. It opens after
// Config.BreakerFailures failures in a row, or at a share of failures of
// BreakerRate among at least BreakerMinCalls calls of the last BreakerWindow.
// After BreakerOpen it is half-open: BreakerProbes calls are let through; when
// all succeed it closes, when one fails it opens again.
//
// What a call is, calls.go says. The publisher's lock guards it.
type breaker struct {
	*circuit.Breaker
	status BreakerStatus
	// moved says that the state changed and that the publisher has not
	// answered to it yet.
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

// reopensIn is how long an open breaker stays so at most.
func (b *breaker) reopensIn() time.Duration { return b.Left() + time.Millisecond }
