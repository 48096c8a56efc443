package orders

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/guard"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Service stores orders with their events. It is safe for concurrent use by any
// number of callers, in any number of processes on one keyspace.
//
// A change that has begun is carried to a known outcome within WriteBudget even
// if the caller's context ends, so that a caller who hangs up does not leave
// one half-way.
type Service struct {
	cfg     Config
	store   store
	log     *slog.Logger
	metrics *metrics
	guard   *guard.Guard
}

// New returns a Service on the tables in session's keyspace. It reaches no
// database. The session stays the caller's to close.
func New(session *gocql.Session, cfg Config) (*Service, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	g, err := guard.New(guard.Config{
		Name: "orders", Breaker: cfg.Breaker, Load: cfg.Load, Timeout: cfg.AttemptTimeout, Logger: cfg.Logger, Registerer: cfg.Registerer,
	})
	if err != nil {
		return nil, err
	}
	return &Service{
		cfg:   cfg,
		guard: g,
		store: store{
			session: session,
			events:  outbox.DefaultTable,
			cons:    cfg.Consistency,
			serial:  cfg.SerialConsistency,
			guard:   g,
		},
		log:     cfg.Logger,
		metrics: m,
	}, nil
}

// WriteOptions go with a change.
type WriteOptions struct {
	// Client is who asks: Idempotency-Keys are each client's own. Empty for those whom
	// nobody tells apart, which have theirs together.
	Client string
	// IdempotencyKey makes a repeated request have the effect and the answer of
	// the first; empty for none. At most MaxKey printable ASCII characters.
	IdempotencyKey string
	// TraceParent and TraceState are W3C trace context; they travel with the
	// event. What is malformed is left out, as that standard asks.
	TraceParent, TraceState string
	// RequestID is the id of the request; it travels with the event, and stands in
	// the log.
	RequestID string
	// IfVersion are the versions of the order of which one must be its version
	// for the change to be made; otherwise it is refused with a
	// *PreconditionError. Nil asks for none. Create ignores it.
	IfVersion []int64
}

// Result is what a change led to.
type Result struct {
	Order Order
	// Replayed: an earlier request with the same Idempotency-Key had made the
	// change, or begun it.
	Replayed bool
}

// Get returns the order, or ErrNotFound, *OverloadedError or *UnavailableError. If a writer
// died between storing an event and applying it to the order, Get returns the
// order with that event applied, and repairs the row.
func (s *Service) Get(ctx context.Context, id gocql.UUID) (Order, error) {
	_, leave, err := s.guard.Enter(ctx, 1)
	if err != nil {
		return Order{}, err
	}
	defer leave()
	return s.get(ctx, id)
}

func (s *Service) get(ctx context.Context, id gocql.UUID) (Order, error) {
	o, err := s.load(ctx, id, s.cfg.Consistency, repairOld)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Order{}, s.unavailable(ctx, id, false, err)
	}
	return o, err
}

// Ready returns nil if the tables can be read at the service's consistency.
func (s *Service) Ready(ctx context.Context) error { return s.store.ready(ctx) }

// committed tells that the order's event is stored.
func (s *Service) committed(ctx context.Context, o *Order) {
	s.cfg.Committed(o.ID)
	if s.log.Enabled(ctx, slog.LevelDebug) {
		s.log.DebugContext(ctx, "event stored", "event_id", o.EventID, "aggregate_id", o.ID, "seq", o.Version)
	}
}

// unavailable builds the error and leaves a trace of it.
func (s *Service) unavailable(ctx context.Context, id gocql.UUID, unknown bool, err error) error {
	level := slog.LevelWarn
	if fateOf(err) == fateInvalid {
		level = slog.LevelError // the database is wrongly set up: no retry mends it
	}
	if (errors.Is(err, guard.ErrOpen) || httpapi.HungUp(ctx, err)) && !unknown {
		level = slog.LevelDebug // the breaker has said so, once; or nobody waits for it
	}
	s.log.Log(ctx, level, "database unavailable", "aggregate_id", id, "outcome_unknown", unknown, "err", err)
	if unknown {
		s.metrics.unknown.Inc()
	}
	return &UnavailableError{OrderID: id, Unknown: unknown, RetryAfter: s.guard.RetryAfter(err, s.cfg.RetryAfter), Err: err}
}

// detach gives a change the time it may take, whatever becomes of the caller.
// It covers the budget, and then an attempt that began within it and a last look.
func (s *Service) detach(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), s.cfg.WriteBudget+2*s.cfg.AttemptTimeout)
}

// firstPause is between the first two attempts of a change.
const firstPause = 50 * time.Millisecond

// newBudget returns what is left of the budget of a detached ctx.
func (s *Service) newBudget(ctx context.Context) *retry.Budget {
	end, _ := ctx.Deadline()
	return retry.Until(ctx, end.Add(-2*s.cfg.AttemptTimeout), firstPause)
}
