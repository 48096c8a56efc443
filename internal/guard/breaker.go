package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
)

// Breaker is when the service stops asking a database that does not answer, and
// when it asks again. Each statement and batch is a call; what failed because it
// was wrong, or because the caller hung up, is none.
type Breaker struct {
	// Failures in a row open it. Default 10; positive.
	Failures int
	// Window, Rate and MinCalls: a share of failures of Rate or more among at
	// least MinCalls calls of the last Window opens it. Defaults 60 s, 0.5 and 20.
	Window   time.Duration
	Rate     float64
	MinCalls int
	// Open is how long it stays open before calls may probe. Default 5 s.
	Open time.Duration
	// Probes are the calls let through then at once: as many successes close it,
	// one failure opens it again. Other calls wait for that, at most a second.
	// Default 3.
	Probes int
}

// WithDefaults returns b with its zero fields set.
func (b Breaker) WithDefaults() Breaker {
	b.Failures = cmp.Or(b.Failures, 10)
	b.Window = cmp.Or(b.Window, time.Minute)
	b.Rate = cmp.Or(b.Rate, 0.5)
	b.MinCalls = cmp.Or(b.MinCalls, 20)
	b.Open = cmp.Or(b.Open, 5*time.Second)
	b.Probes = cmp.Or(b.Probes, 3)
	return b
}

// Validate says what is wrong with b, which has its defaults.
func (b Breaker) Validate() error {
	if b.Failures < 1 || b.Window <= 0 || b.Rate <= 0 || b.Rate > 1 || b.MinCalls < 1 || b.Open <= 0 || b.Probes < 1 {
		return fmt.Errorf("breaker %+v: all must be positive and the rate at most 1", b)
	}
	return nil
}

// errNoCall is the result of a call that says nothing of the database.
var errNoCall = errors.New("not counted")

// breaker stands before every attempt. It is safe for concurrent use.
type breaker struct {
	cb      *gobreaker.TwoStepCircuitBreaker[struct{}]
	open    time.Duration
	log     *slog.Logger
	metrics *metrics

	mu     sync.Mutex
	since  time.Time
	cause  error         // of the last failure
	result chan struct{} // closed with the next result of a call; nil while none is awaited
}

// probeWait is how long a call waits for the results of the probes: a request of several
// statements would otherwise be refused by a database that answers.
const probeWait = time.Second

func newBreaker(cfg Breaker, log *slog.Logger, m *metrics) *breaker {
	b := &breaker{open: cfg.Open, log: log, metrics: m}
	b.cb = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:         "database",
		MaxRequests:  uint32(cfg.Probes),
		Interval:     cfg.Window,
		BucketPeriod: max(cfg.Window/60, time.Millisecond),
		Timeout:      cfg.Open,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			calls := c.TotalSuccesses + c.TotalFailures
			return c.ConsecutiveFailures >= uint32(cfg.Failures) ||
				calls >= uint32(cfg.MinCalls) && float64(c.TotalFailures) >= cfg.Rate*float64(calls)
		},
		IsExcluded:    func(err error) bool { return errors.Is(err, errNoCall) },
		OnStateChange: func(_ string, from, to gobreaker.State) { b.changed(from, to) },
	})
	return b
}

// call asks to send a statement; done tells what came of it, once.
func (b *breaker) call(ctx context.Context) (done func(error), err error) {
	d, err := b.cb.Allow()
	if errors.Is(err, gobreaker.ErrTooManyRequests) {
		d, err = b.awaitProbes(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOpen, b.why())
	}
	return func(err error) {
		switch {
		case err == nil:
		case FateOf(err) == cqlcode.Invalid, errors.Is(err, context.Canceled), cqlcode.Lost(err):
			err = errNoCall // a lost connection is one node's: without the others the next call finds none
		default:
			b.mu.Lock()
			b.cause = err
			b.mu.Unlock()
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

// awaitProbes asks again with each result of a call, until it is decided or ctx ends.
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
		if done, err = b.cb.Allow(); !errors.Is(err, gobreaker.ErrTooManyRequests) {
			return done, err
		}
		select {
		case <-result:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// changed is called by gobreaker, inside of call, done and look.
func (b *breaker) changed(from, to gobreaker.State) {
	b.mu.Lock()
	was := b.since
	b.since = time.Now()
	cause := b.cause
	b.mu.Unlock()
	b.metrics.breaker(to)
	switch to {
	case gobreaker.StateOpen:
		b.log.Warn("breaker opens: the database is not asked", "from", from.String(), "for", b.open, "cause", cause)
	case gobreaker.StateHalfOpen:
		b.log.Info("breaker is half-open: a few statements probe the database", "open_for", time.Since(was).Round(time.Millisecond), "cause", cause)
	default:
		b.log.Info("breaker closes: the database is asked again", "cause_was", cause)
	}
}

// why is what opened it.
func (b *breaker) why() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cause == nil {
		return gobreaker.ErrOpenState
	}
	return b.cause
}

// look lets time pass and returns the state, and how long an open breaker stays
// so at most.
func (b *breaker) look() (state gobreaker.State, left time.Duration) {
	state = b.cb.State()
	b.mu.Lock()
	defer b.mu.Unlock()
	if state == gobreaker.StateOpen {
		left = max(b.open-time.Since(b.since), 0)
	}
	return state, left
}
