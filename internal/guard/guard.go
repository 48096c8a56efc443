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

// Config is how a Guard behaves.
type Config struct {
	// Name is the service's: it begins the names of the metrics and stands in the log. Required.
	Name string
	// Breaker and Load are with their defaults.
	Breaker Breaker
	Load    Load
	// Timeout bounds one attempt. Required.
	Timeout time.Duration
	// Logger gets what the breaker does. Required, as is Registerer.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Guard stands before a database. It is safe for concurrent use.
type Guard struct {
	breaker *breaker
	room    *room
	timeout time.Duration

	// Dead is asked before each attempt, so that a test can let the process die
	// between any two; nil outside of tests.
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

// ErrOpen says that a statement was not sent, since the breaker is open.
var ErrOpen = errors.New("the breaker before the database is open")

// Call asks to make one attempt: a statement, a batch, or a few that belong
// together. It returns the context for it, which ends after the timeout; done
// must be told once what came of it, and releases the context. While the breaker is
// half-open it waits for the probes. The error wraps ErrOpen, and why the breaker opened.
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

// Full returns an *OverloadedError if Enter would at once, so that nothing is
// spent on a request that there is no room for; else nil, which promises nothing.
func (g *Guard) Full() error { return g.room.full() }

// Enter waits for places at the database; leave gives them back. A request that
// asks for more than half of them gets half, so that it never keeps all others
// waiting; places says how many it has. The error is an *OverloadedError, after
// which nothing was done, or that of ctx. Who waits longest is next.
func (g *Guard) Enter(ctx context.Context, want int) (places int, leave func(), err error) {
	return g.room.enter(ctx, want)
}

// Breaker lets time pass and returns the breaker's state, closed, half-open or
// open, and how long an open one stays so at most.
func (g *Guard) Breaker() (state string, left time.Duration) {
	return g.breaker.Look().State.String(), g.breaker.Left()
}

// Load is how many places at the database are taken, and how many are waited for.
func (g *Guard) Load() (inFlight, waiting int) {
	return int(g.room.taken.Load()), int(g.room.waiting.Load())
}

// RetryAfter is what a caller is told to wait after err: at least the given
// time, and for as long as the breaker is open.
func (g *Guard) RetryAfter(err error, least time.Duration) time.Duration {
	if !errors.Is(err, ErrOpen) {
		return least
	}
	g.breaker.Look()
	return max(least, g.breaker.Left())
}

// FateOf is cqlcode.FateOf, and knows that an open breaker sends nothing, and
// that an event which cannot be stored reached no database.
func FateOf(err error) cqlcode.Fate {
	if bad, ok := errors.AsType[*outbox.InvalidEventError](err); ok && bad != nil {
		return cqlcode.Invalid
	}
	if errors.Is(err, ErrOpen) {
		return cqlcode.Refused
	}
	return cqlcode.FateOf(err)
}
