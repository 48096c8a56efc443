package guard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/gocql/gocql"
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
	// Breaker is used with its defaults.
	Breaker Breaker
	// Limiter bounds the concurrent work; services on one database share one. Default:
	// a new one.
	Limiter *Limiter
	// Timeout limits one attempt. Required.
	Timeout time.Duration
	// Logger receives the changes of the breaker. Required, as is Registerer.
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Guard protects a database. It is safe for concurrent use.
type Guard struct {
	breaker *breaker
	limiter *Limiter
	timeout time.Duration

	// Dead is called before each attempt, so that a test can end the process between
	// any two; nil outside of tests.
	Dead func() bool
}

// New returns a Guard.
func New(cfg Config) (*Guard, error) {
	cfg.Breaker = cfg.Breaker.WithDefaults()
	if err := cfg.Breaker.Validate(); err != nil {
		return nil, err
	}
	if cfg.Limiter == nil {
		var err error
		if cfg.Limiter, err = NewLimiter(LimiterConfig{Registerer: cfg.Registerer}); err != nil {
			return nil, err
		}
	}
	m := circuit.NewMetrics(cfg.Name, "database")
	for _, c := range m.Collectors() {
		if err := cfg.Registerer.Register(c); err != nil {
			return nil, fmt.Errorf("register %s metrics: %w", cfg.Name, err)
		}
	}
	return &Guard{
		breaker: &breaker{Breaker: circuit.New(cfg.Breaker, cfg.Logger.With("service", cfg.Name), m, nil)},
		limiter: cfg.Limiter, timeout: cfg.Timeout,
	}, nil
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
	start := time.Now()
	return ctx, func(err error) {
		cancel()
		tell(err)
		switch {
		case err == nil || errors.Is(err, gocql.ErrNotFound) || timedOut(err):
			g.limiter.observe(start, time.Since(start))
		case isOverload(err):
			g.limiter.observe(start, g.timeout)
		}
	}, nil
}

// timedOut reports whether err means that the database did not answer in time. The
// latency of other failures says nothing about its load.
func timedOut(err error) bool {
	code := cqlcode.Of(err)
	return code == gocql.ErrCodeWriteTimeout || code == gocql.ErrCodeReadTimeout ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, gocql.ErrTimeoutNoResponse)
}

// isOverload reports whether the database refused a statement because of its load. It
// then counts as one that timed out.
func isOverload(err error) bool {
	code := cqlcode.Of(err)
	return code == gocql.ErrCodeOverloaded || code == cqlcode.RateLimit || errors.Is(err, gocql.ErrNoStreams)
}

// Enter is Limiter.Enter.
func (g *Guard) Enter(ctx context.Context, want int) (places int, leave func(), err error) {
	return g.limiter.Enter(ctx, want)
}

// Limiter returns the limiter.
func (g *Guard) Limiter() *Limiter { return g.limiter }

// Breaker returns the current state of the breaker, closed, half-open or open, and how
// long an open one stays open at most.
func (g *Guard) Breaker() (state string, left time.Duration) {
	return g.breaker.Look().State.String(), g.breaker.Left()
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

// ClassifyFate is cqlcode.FateOf extended by two errors: an open breaker sends nothing, and
// an event that cannot be stored reached no database.
func ClassifyFate(err error) cqlcode.Fate {
	if bad, ok := errors.AsType[*outbox.InvalidEventError](err); ok && bad != nil {
		return cqlcode.Invalid
	}
	if errors.Is(err, ErrOpen) {
		return cqlcode.Refused
	}
	return cqlcode.ClassifyFate(err)
}
