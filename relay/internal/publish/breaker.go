package publish

import (
	"github.com/scylla-outbox/scylla-outbox/internal/circuit"
	"github.com/scylla-outbox/scylla-outbox/relay/internal/calls"
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

// newCalls returns the breaker and the accounting of the calls that it counts.
func newCalls(cfg *Config, m *Metrics) *calls.Calls {
	return calls.New(calls.Config{
		Circuit: circuit.Config{
			Failures: cfg.BreakerFailures, Window: cfg.BreakerWindow, Rate: cfg.BreakerRate, MinCalls: cfg.BreakerMinCalls,
			Open: cfg.BreakerOpen, Probes: cfg.BreakerProbes,
		},
		AttemptTimeout: cfg.AttemptTimeout, Attempts: len(cfg.RetryDelays), Logger: cfg.Logger, Metrics: m.Breaker,
	})
}
