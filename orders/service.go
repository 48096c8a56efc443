package orders

import (
	"context"
	"errors"
	"fmt"
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
// A started change continues to a known outcome within WriteBudget even if the
// caller's context ends, so a client that disconnects leaves no incomplete
// change.
type Service struct {
	cfg      Config
	store    store
	appender *outbox.Appender
	log      *slog.Logger
	metrics  *metrics
	guard    *guard.Guard
}

// New returns a Service on the tables in session's keyspace. It does not access
// the database. The caller closes the session. Without a session, nil, only the descriptions of
// the API can be served.
func New(session *gocql.Session, cfg Config) (*Service, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Registerer, cfg.RowTTL)
	if err != nil {
		return nil, err
	}
	g, err := guard.New(guard.Config{
		Name: "orders", Breaker: cfg.Breaker, Limiter: cfg.Limiter, Timeout: cfg.AttemptTimeout, Logger: cfg.Logger, Registerer: cfg.Registerer,
	})
	if err != nil {
		return nil, err
	}
	s := &Service{
		cfg: cfg, guard: g, log: cfg.Logger, metrics: m,
		store: store{session: session, events: outbox.DefaultTable, cons: cfg.Consistency, serial: cfg.SerialConsistency, guard: g},
	}
	if session != nil {
		s.appender, err = s.newAppender(cfg.WriteBudget)
	}
	return s, err
}

// newAppender returns the Appender of the events of orders, whose attempts the guard permits.
func (s *Service) newAppender(budget time.Duration) (*outbox.Appender, error) {
	a, err := outbox.NewAppender(context.Background(), s.store.session, s.store.events, outbox.AppenderConfig{
		Consistency: s.cfg.Consistency, LocalSerial: s.cfg.SerialConsistency == gocql.LocalSerial,
		AttemptTimeout: s.cfg.AttemptTimeout, Budget: budget, RowTTL: s.cfg.RowTTL,
		Attempt: func(ctx context.Context, statement func(context.Context) error) error {
			ctx, done, err := s.guard.Call(ctx)
			if err == nil {
				err = statement(ctx)
				done(err)
			}
			s.metrics.attempt(stepAppend, classifyFate(err))
			return err
		},
	})
	if err != nil {
		return nil, fmt.Errorf("orders: %w", err)
	}
	return a, nil
}

// WriteOptions are the options of a change.
type WriteOptions struct {
	// Client is the authenticated client; each client has its own
	// Idempotency-Keys. Empty for unauthenticated clients, which share theirs.
	Client string
	// IdempotencyKey makes a repeated request have the effect and the response of
	// the first; optional. At most MaxKey printable ASCII characters.
	IdempotencyKey string
	// TraceParent and TraceState are W3C trace context; the event contains them, or the
	// context of the OpenTelemetry span in the context of the call.
	// Malformed values are dropped, as that standard requires.
	TraceParent, TraceState string
	// RequestID is the id of the request; the event and the log contain it.
	RequestID string
	// IfVersion are the acceptable versions of the order; any other version
	// refuses the change with a *PreconditionError. Nil accepts every version.
	// Create ignores it.
	IfVersion []int64
}

// Result is the result of a change.
type Result struct {
	Order Order
	// payload is that of the event of Order, if the change has encoded it.
	payload []byte
	// Replayed is true if an earlier request with the same Idempotency-Key made or
	// started the change.
	Replayed bool
}

// Get returns the order, or ErrNotFound, *OverloadedError or *UnavailableError.
// If a writer failed between storing an event and applying it to the order, Get
// returns the order with that event applied, and repairs the row.
func (s *Service) Get(ctx context.Context, id gocql.UUID) (Order, error) {
	_, leave, err := s.guard.Enter(ctx, 1)
	if err != nil {
		return Order{}, err
	}
	defer leave()
	return s.get(ctx, id)
}

func (s *Service) get(ctx context.Context, id gocql.UUID) (Order, error) {
	o, err := s.load(ctx, id, repairOld)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Order{}, s.unavailable(ctx, id, false, err)
	}
	return o, err
}

// Limiter returns the limiter of the service, for another service on the same
// database.
func (s *Service) Limiter() *Limiter { return s.guard.Limiter() }

// Ready returns nil if the tables can be read at the service's consistency.
func (s *Service) Ready(ctx context.Context) error { return s.store.ready(ctx) }

// afterCommit reports that the event of o is stored.
func (s *Service) afterCommit(ctx context.Context, o *Order) {
	if s.cfg.Hints != nil {
		s.cfg.Hints.Committed(outbox.IDFromUUID(o.ID))
	}
	if s.log.Enabled(ctx, slog.LevelDebug) {
		s.log.DebugContext(ctx, "event stored", "event_id", o.EventID, "aggregate_id", o.ID, "sequence", o.Version)
	}
}

// unavailable builds the error and logs it.
func (s *Service) unavailable(ctx context.Context, id gocql.UUID, unknown bool, err error) error {
	level := slog.LevelWarn
	if classifyFate(err) == fateInvalid {
		level = slog.LevelError // the database is misconfigured: retries do not help
	}
	if (errors.Is(err, guard.ErrOpen) || httpapi.HungUp(ctx, err)) && !unknown {
		level = slog.LevelDebug // the breaker has logged this once, or the client has disconnected
	}
	s.log.Log(ctx, level, "database unavailable", "aggregate_id", id, "outcome_unknown", unknown, "err", err)
	if unknown {
		s.metrics.unknown.Inc()
	}
	return &UnavailableError{OrderID: id, Unknown: unknown, RetryAfter: s.guard.RetryAfter(err, s.cfg.RetryAfter), Err: err}
}

// detach returns a context for a change that outlives that of the caller. It
// covers the budget, a last attempt within it and a last read.
func (s *Service) detach(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), s.cfg.WriteBudget+2*s.cfg.AttemptTimeout)
}

// firstPause is the delay between the first two attempts of a change.
const firstPause = 50 * time.Millisecond

// newBudget returns the remaining budget of a detached ctx.
func (s *Service) newBudget(ctx context.Context) *retry.Budget {
	end, _ := ctx.Deadline()
	return retry.Until(ctx, end.Add(-2*s.cfg.AttemptTimeout), firstPause)
}

// Preview is the result that a change would have on the current order.
type Preview struct {
	Change  Change `json:"change" enum:"update,confirm,ship,cancel"`
	Allowed bool   `json:"allowed" doc:"The change is allowed unless a concurrent change comes first"`
	Refusal string `json:"refusal,omitempty" doc:"Why it would be refused"`
	// Status and Version are the current ones, StatusAfter and VersionAfter those
	// after the change. They are equal if the change is refused.
	Status       Status `json:"status" enum:"placed,confirmed,shipped,cancelled"`
	Version      int64  `json:"version"`
	StatusAfter  Status `json:"status_after" enum:"placed,confirmed,shipped,cancelled"`
	VersionAfter int64  `json:"version_after"`
	EventType    string `json:"event_type,omitempty" doc:"The event that would be published"`
}

// Preview returns the result that a change would have, by the same rules,
// without storing anything. Errors are as for Get.
func (s *Service) Preview(ctx context.Context, id gocql.UUID, c Change) (Preview, error) {
	o, err := s.Get(ctx, id)
	if err != nil {
		return Preview{}, err
	}
	p := Preview{Change: c, Status: o.Status, Version: o.Version, StatusAfter: o.Status, VersionAfter: o.Version}
	to, refused := o.allows(c)
	if refused != nil {
		p.Refusal = refused.Reason()
		return p, nil
	}
	p.Allowed, p.StatusAfter, p.VersionAfter, p.EventType = true, to, o.Version+1, c.eventType()
	return p, nil
}
