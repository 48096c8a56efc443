package guard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/circuit"
	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
)

// Breaker configures when the service stops sending statements to a database that does
// not answer, and when it resumes. Each statement and batch is a call; wrong statements
// and calls whose caller hung up do not count. While probes are in progress, other
// calls wait for them, at most a second.
type Breaker = circuit.Config

// breaker precedes every attempt. It is safe for concurrent use.
type breaker struct {
	*circuit.Breaker

	mu     sync.Mutex
	result chan struct{} // closed with the next result of a call; nil while none is awaited
}

// probeWait limits the time that a call waits for the results of the probes. Without a
// wait, a request of several statements would be refused by a database that answers.
const probeWait = time.Second

// call requests permission for a statement; done takes its result, once.
func (b *breaker) call(ctx context.Context) (done func(error), err error) {
	d, err := b.Allow()
	if errors.Is(err, circuit.ErrProbing) {
		d, err = b.awaitProbes(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOpen, b.Look().Why())
	}
	return func(err error) {
		if err != nil && (ClassifyFate(err) == cqlcode.Invalid || errors.Is(err, context.Canceled) || cqlcode.Lost(err)) {
			err = circuit.ErrUncounted // a lost connection is one node's: without the others the next call finds none
		}
		d(err)
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.result != nil {
			close(b.result)
			b.result = nil
		}
	}, nil
}

// awaitProbes tries again after each result of a call, until it is decided or ctx ends.
func (b *breaker) awaitProbes(ctx context.Context) (done func(error), err error) {
	ctx, cancel := context.WithTimeout(ctx, probeWait)
	defer cancel()
	for {
		b.mu.Lock()
		if b.result == nil {
			b.result = make(chan struct{})
		}
		result := b.result
		b.mu.Unlock()
		if done, err = b.Allow(); !errors.Is(err, circuit.ErrProbing) {
			return done, err
		}
		select {
		case <-result:
		case <-ctx.Done():
			return nil, err
		}
	}
}
