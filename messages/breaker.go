package messages

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
)

// The breaker before the database opens after breakerFailures failures in a row,
// or when breakerRate of at least breakerCalls calls in breakerWindow fail. Half
// open it lets breakerProbes calls through.
const (
	breakerFailures = 10
	breakerCalls    = 20
	breakerRate     = 0.5
	breakerWindow   = time.Minute
	breakerProbes   = 3
)

// errBreakerOpen says that a statement was not sent.
var errBreakerOpen = errors.New("the breaker before the database is open")

// errNoCall is the result of a call that says nothing of the database.
var errNoCall = errors.New("not counted")

// breaker stands before what stores messages. It is safe for concurrent use.
type breaker struct {
	cb *gobreaker.TwoStepCircuitBreaker[struct{}]
}

func newBreaker(open time.Duration, log *slog.Logger) *breaker {
	return &breaker{gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name: "database", MaxRequests: breakerProbes, Interval: breakerWindow, BucketPeriod: breakerWindow / 60, Timeout: open,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			calls := c.TotalSuccesses + c.TotalFailures
			return c.ConsecutiveFailures >= breakerFailures || calls >= breakerCalls && float64(c.TotalFailures) >= breakerRate*float64(calls)
		},
		IsExcluded: func(err error) bool { return errors.Is(err, errNoCall) },
		OnStateChange: func(_ string, from, to gobreaker.State) {
			log.Warn("breaker before the database of messages", "from", from.String(), "to", to.String())
		},
	})}
}

// do makes one attempt, unless the breaker is open.
func (b *breaker) do(attempt func() error) error {
	done, err := b.cb.Allow()
	if err != nil {
		return fmt.Errorf("%w: %w", errBreakerOpen, err)
	}
	err = attempt()
	if cqlcode.FateOf(err) == cqlcode.Invalid || errors.Is(err, context.Canceled) {
		done(errNoCall)
	} else {
		done(err)
	}
	return err
}

// fateOf is cqlcode.FateOf, and knows that an open breaker sends nothing.
func fateOf(err error) cqlcode.Fate {
	if errors.Is(err, errBreakerOpen) {
		return cqlcode.Refused
	}
	return cqlcode.FateOf(err)
}
