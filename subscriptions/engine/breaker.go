package engine

import (
	"context"
	"sync"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/circuit"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/plugin"
)

const (
	// breakerFailures is the number of calls in a row whose failure opens the breaker.
	breakerFailures = 3
	// firstProbe and lastProbe bound the time until the next probe of an open breaker, which
	// doubles.
	firstProbe = time.Second
	lastProbe  = 30 * time.Second
)

// breaker decides whether the destination of a subscription is called. While it is open
// nothing is leased. It then permits one call at a time, the probe, each with another message.
//
// A failure for which the destination is the likely cause counts as a delivery of its message
// only if the destination has accepted another message since the last failure of this one: an
// outage uses up no attempts, and a message that the destination alone cannot process does.
type breaker struct {
	*circuit.Breaker
	to    string
	moved chan struct{} // has a value after a change of the state

	mu struct {
		sync.Mutex
		until     time.Time // no probe before
		reopened  int       // probes that have failed since it opened
		successes uint64
		failed    map[place]uint64 // successes at the last failure of a message that did not count
	}
}

// place is that of a message.
type place struct {
	topicPartition
	offset int64
}

func newBreaker(g *group, to string) *breaker {
	b := &breaker{to: to, moved: make(chan struct{}, 1)}
	b.mu.failed = make(map[place]uint64)
	// The metrics of the subscription replace the breaker's own.
	cfg := circuit.Config{Failures: breakerFailures, MinCalls: 1 << 30, Open: firstProbe, Probes: 1}.WithDefaults()
	b.Breaker = circuit.New(cfg, g.log.With("to", to), circuit.NewMetrics("push", "push target"), b.setNextProbe)
	return b
}

// setNextProbe sets the time of the next probe.
func (b *breaker) setNextProbe(s circuit.Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch s.State {
	case circuit.Open:
		b.mu.reopened++
		b.mu.until = time.Now().Add(max(firstProbe, retry.Backoff(firstProbe, lastProbe, b.mu.reopened)))
	case circuit.Closed:
		b.mu.reopened, b.mu.until = 0, time.Time{}
	case circuit.HalfOpen:
	}
	select {
	case b.moved <- struct{}{}:
	default:
	}
}

// wait waits until calls are permitted, and returns the number of them, up to n; 0 if a
// context ends first.
func (b *breaker) wait(ctx context.Context, stopping <-chan struct{}, n int) int {
	for {
		b.mu.Lock()
		left := time.Until(b.mu.until)
		b.mu.Unlock()
		if left <= 0 {
			switch s := b.Look(); s.State {
			case circuit.Closed:
				return n
			case circuit.HalfOpen:
				b.mu.Lock()
				b.mu.until = time.Now().Add(firstProbe) // the next one, if this one has no result
				b.mu.Unlock()
				return 1
			case circuit.Open:
				left = max(b.Left(), time.Millisecond)
			}
		}
		t := time.NewTimer(left)
		select {
		case <-t.C:
		case <-b.moved:
			t.Stop()
		case <-stopping:
			t.Stop()
			return 0
		case <-ctx.Done():
			t.Stop()
			return 0
		}
	}
}

// result records the result of a call, and reports whether a failure counts as a delivery.
func (b *breaker) result(at place, p plugin.Plugin, err error, done func(error)) (counts bool) {
	unavailable := plugin.IsUnavailable(err)
	switch {
	case err == nil || plugin.IsPermanent(err): // it answers
		done(nil)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.mu.successes++
		delete(b.mu.failed, at)
		return true
	case !unavailable && !plugin.IsTarget(p): // an error of code about its message
		done(circuit.ErrUncounted)
		return true
	}
	done(err)
	open := b.Look().State != circuit.Closed
	b.mu.Lock()
	defer b.mu.Unlock()
	if seen, ok := b.mu.failed[at]; ok && b.mu.successes > seen || !unavailable && !open {
		delete(b.mu.failed, at)
		return true
	}
	if len(b.mu.failed) >= maxFailed {
		clear(b.mu.failed)
	}
	b.mu.failed[at] = b.mu.successes
	return false
}

// maxFailed bounds breaker.failed.
const maxFailed = 10_000

// status returns the state for reports.
func (b *breaker) status() *subscriptions.BreakerStatus {
	s := b.Look()
	out := &subscriptions.BreakerStatus{State: s.State.String(), Since: s.Since.UTC()}
	if s.State != circuit.Closed {
		b.mu.Lock()
		out.NextProbe = b.mu.until.UTC()
		b.mu.Unlock()
		out.Cause = formatError(s.Why())
	}
	return out
}
