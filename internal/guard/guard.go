package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/circuit"
	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Config configures a Guard.
type Config struct {
	// Name is the name of the service: the prefix of its metrics, and an attribute in
	// the log. Required.
	Name string
	// Breaker and Load are used with their defaults.
	Breaker Breaker
	Load    Load
	// Timeout limits one attempt. Required.
	Timeout time.Duration
	// Logger receives the changes of the breaker. Required, as is Registerer.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Guard protects a database. It is safe for concurrent use.
type Guard struct {
	breaker *breaker
	room    *room
	timeout time.Duration

	// Dead is called before each attempt, so that a test can end the process between
	// any two; nil outside of tests.
	Dead func() bool
}

// New returns a Guard.
func New(cfg Config) (*Guard, error) {
	cfg.Breaker, cfg.Load = cfg.Breaker.WithDefaults(), cfg.Load.WithDefaults()
	if err := errors.Join(cfg.Breaker.Validate(), cfg.Load.Validate()); err != nil {
		return nil, err
	}
	m := newMetrics(cfg.Name)
	g := &Guard{
		breaker: &breaker{Breaker: circuit.New(cfg.Breaker, cfg.Logger.With("service", cfg.Name), m.breaker, nil)},
		room:    newRoom(cfg.Load, m), timeout: cfg.Timeout,
	}
	if err := m.register(cfg.Registerer, g.room); err != nil {
		return nil, fmt.Errorf("register %s metrics: %w", cfg.Name, err)
	}
	return g, nil
}

// ErrOpen means that a statement was not sent because the breaker is open.
var ErrOpen = errors.New("the database's circuit breaker is open")

// Call requests permission for one attempt: a statement, a batch, or a few that belong
// together. It returns the context for the attempt, which ends after the timeout. done
// must be called once with the result, and releases the context. While the breaker is
// half-open, Call waits for the probes. Its error wraps ErrOpen and the failure that
// opened the breaker.
func (g *Guard) Call(ctx context.Context) (attempt context.Context, done func(error), err error) {
	if g.Dead != nil && g.Dead() {
		return nil, nil, ErrOpen
	}
	tell, err := g.breaker.call(ctx)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, g.timeout)
	return ctx, func(err error) {
		cancel()
		tell(err)
	}, nil
}

// Full returns an *OverloadedError if Enter would return one immediately, so that
// nothing is spent on a request without a place. A nil result is no promise.
func (g *Guard) Full() error { return g.room.full() }

// Enter waits for places at the database; leave returns them. A request for more than
// half of them gets half, so that it never blocks all others; places is the number it
// has. The error is an *OverloadedError, after which nothing was done, or that of ctx.
// The longest waiter is next.
func (g *Guard) Enter(ctx context.Context, want int) (places int, leave func(), err error) {
	return g.room.enter(ctx, want)
}

// Breaker returns the current state of the breaker, closed, half-open or open, and how
// long an open one stays open at most.
func (g *Guard) Breaker() (state string, left time.Duration) {
	return g.breaker.Look().State.String(), g.breaker.Left()
}

// Load returns how many places at the database are taken, and how many are waited for.
func (g *Guard) Load() (inFlight, waiting int) {
	return int(g.room.taken.Load()), int(g.room.waiting.Load())
}

// RetryAfter returns the delay for a caller's retry after err: at least the given time,
// and as long as the breaker is open.
func (g *Guard) RetryAfter(err error, least time.Duration) time.Duration {
	if !errors.Is(err, ErrOpen) {
		return least
	}
	g.breaker.Look()
	return max(least, g.breaker.Left())
}

// FateOf is cqlcode.FateOf extended by two errors: an open breaker sends nothing, and
// an event that cannot be stored reached no database.
func FateOf(err error) cqlcode.Fate {
	if bad, ok := errors.AsType[*outbox.InvalidEventError](err); ok && bad != nil {
		return cqlcode.Invalid
	}
	if errors.Is(err, ErrOpen) {
		return cqlcode.Refused
	}
	return cqlcode.FateOf(err)
}
