package messages

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/internal/guard"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
	"github.com/scylla-outbox/scylla-outbox/internal/registry"
	"github.com/scylla-outbox/scylla-outbox/internal/requestkeys"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/internal/trace"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/schedule"
)

// Service stores messages. It is safe for concurrent use by any number of
// callers, in any number of processes on one keyspace.
//
// A started write continues to a known outcome within WriteBudget even if the
// caller's context ends.
type Service struct {
	cfg      Config
	store    store
	schedule *schedule.Store
	quotas   *quotas
	metrics  *metrics
	guard    *guard.Guard
}

// NewService returns a Service on the tables in session's keyspace. It does not
// access the database. The caller closes the session.
func NewService(session *gocql.Session, cfg Config) (*Service, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Registerer)
	if err != nil {
		return nil, err
	}
	g, err := guard.New(guard.Config{
		Name: "messages", Breaker: cfg.Breaker, Limiter: cfg.Limiter, Timeout: cfg.AttemptTimeout, Logger: cfg.Logger, Registerer: cfg.Registerer,
	})
	if err != nil {
		return nil, err
	}
	return &Service{
		cfg:      cfg,
		store:    store{session: session, events: outbox.DefaultTable, cons: cfg.Consistency},
		schedule: schedule.NewStore(session, cfg.Consistency, cfg.AttemptTimeout),
		quotas:   newQuotas(&cfg),
		metrics:  m,
		guard:    g,
	}, nil
}

// ready returns nil if the tables can be read at the service's consistency. It reads rows that do
// not exist, which uses the same replicas as existing ones.
func (s *Service) ready(ctx context.Context) error {
	var none gocql.UUID
	if _, err := s.schedule.Read(ctx, none); err != nil && !errors.Is(err, schedule.ErrNotFound) {
		return err
	}
	_, _, err := s.store.event(ctx, none)
	return err
}

// Options are the options of a request.
type Options struct {
	// Client is the authenticated client or address. Quotas are per client; Idempotency-Keys
	// are per authenticated client, and one namespace for all addresses.
	Client string
	// IdempotencyKey makes a repeated request have the effect and the response of
	// the first; optional.
	IdempotencyKey string
	// TraceParent and TraceState are W3C trace context; they travel with the message, or
	// the context of the OpenTelemetry span in the context of the call does.
	TraceParent, TraceState string
	// RequestID is the id of the request; it travels with the message.
	RequestID string
}

// Accepted is a stored message.
type Accepted struct {
	ID gocql.UUID
	// State is Queued or Scheduled, also if Replayed; Get returns the current
	// state.
	State     State
	CreatedAt time.Time
	// DeliverAt is the due time; zero for immediate delivery.
	DeliverAt time.Time
	// Replayed: an earlier request with the same Idempotency-Key had stored it.
	Replayed bool
}

// Accept stores one message. Errors are *InvalidError, requestkeys.ErrReuse,
// *QuotaError, *OverloadedError or *UnavailableError. After the last with Unknown set, the same
// request with the same Idempotency-Key finds out and completes it.
func (s *Service) Accept(ctx context.Context, n NewMessage, opts Options) (Accepted, error) {
	results, err := s.acceptAll(ctx, []Item{{NewMessage: n}}, n, opts, false)
	if err != nil {
		return Accepted{}, err
	}
	return results[0].Accepted, results[0].Err
}

// Item is one of a batch: a message, or why it could not be read as one.
type Item struct {
	NewMessage
	Err    error
	schema string // URL
}

// Result is the result of one item: it is stored unless there is an error of
// Accept.
type Result struct {
	Accepted
	Err error
}

// AcceptBatch stores up to MaxBatch messages separately: some may be stored and
// others not. An error applies to all of them: requestkeys.ErrReuse, a *QuotaError,
// an *OverloadedError, or an *UnavailableError with nothing stored.
func (s *Service) AcceptBatch(ctx context.Context, items []Item, opts Options) ([]Result, error) {
	request := make([]any, len(items))
	for i := range items {
		request[i] = items[i].NewMessage
		if items[i].Err != nil {
			request[i] = items[i].Err.Error()
		}
	}
	return s.acceptAll(ctx, items, request, opts, true)
}

func (s *Service) acceptAll(ctx context.Context, items []Item, request any, opts Options, batch bool) ([]Result, error) {
	now := s.cfg.Clock.Now().UTC().Truncate(time.Millisecond)
	results := make([]Result, len(items))
	good := 0
	for i := range items {
		err := items[i].Err
		if err == nil {
			err = items[i].validate(&s.cfg, now)
		}
		if results[i].Err = err; err != nil {
			s.metrics.results.WithLabelValues(resultInvalid).Inc()
			continue
		}
		good++
	}
	if err := validateKey(opts.IdempotencyKey); err != nil {
		return nil, err
	}
	if good == 0 {
		return results, nil
	}
	if err := s.quotas.take(opts.Client, good, now); err != nil {
		s.metrics.results.WithLabelValues(resultQuota).Add(float64(good))
		return nil, err
	}
	// After the quota, which charges for the check, and before the places for the database, which
	// must not wait for the schema registry.
	if good -= s.checkSchemas(ctx, items, results); good == 0 {
		return results, nil
	}
	places, leave, err := s.guard.Enter(ctx, good)
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, cancel := s.detach(ctx)
	defer cancel()
	now = s.cfg.Clock.Now().UTC().Truncate(time.Millisecond) // after the wait: rows must not be older than the position of the relay's tail reader
	id := identity{id: outbox.NewID().UUID(), createdAt: now, headers: trace.Headers(ctx, opts.TraceParent, opts.TraceState, opts.RequestID)}
	if opts.IdempotencyKey != "" {
		if id, err = s.claim(ctx, opts, request, id); err != nil {
			if errors.As(err, new(*UnavailableError)) {
				s.metrics.results.WithLabelValues(resultUnavailable).Add(float64(good))
			}
			return nil, err
		}
	}
	var g errgroup.Group
	g.SetLimit(places)
	for i := range items {
		if results[i].Err != nil {
			continue
		}
		one := id
		switch {
		case batch && opts.IdempotencyKey != "":
			one.id = outbox.NameID(id.id, strconv.Itoa(i)).UUID()
		case batch:
			one.id = outbox.NewID().UUID()
		}
		one.headers = registry.WithSchema(one.headers, items[i].schema)
		g.Go(func() error {
			results[i].Accepted, results[i].Err = s.accept(ctx, &items[i].NewMessage, one, opts.Client)
			s.count(&results[i])
			return nil
		})
	}
	return results, g.Wait()
}

func (s *Service) count(r *Result) {
	result := resultQueued
	switch u := (*UnavailableError)(nil); {
	case errors.As(r.Err, &u) && u.Unknown:
		result = resultUnknown
	case r.Err != nil:
		result = resultUnavailable
	case r.Replayed:
		result = resultReplayed
	case r.State == Scheduled:
		result = resultScheduled
	}
	s.metrics.results.WithLabelValues(result).Inc()
}

// claim decides which request owns the client's key.
func (s *Service) claim(ctx context.Context, opts Options, request any, fresh identity) (identity, error) {
	owner := opts.Client
	if strings.HasPrefix(owner, addressClient) { // a retry may come from another address
		owner = strings.TrimSpace(addressClient)
	}
	r, err := requestkeys.New("messages", owner, opts.IdempotencyKey, request)
	if err != nil {
		return identity{}, err
	}
	for wait := newPause(ctx, s.cfg.AttemptTimeout); ; {
		var id identity
		var same bool
		err := s.try(ctx, func(ctx context.Context) (err error) {
			id, same, err = s.store.claim(ctx, r, fresh)
			return err
		})
		switch fate := guard.ClassifyFate(err); {
		case fate == cqlcode.Done && !same:
			return identity{}, requestkeys.ErrReuse
		case fate == cqlcode.Done:
			return id, nil
		case fate != cqlcode.Unknown || !wait.Pause():
			// Repeating settles an unknown outcome. No message was written yet.
			return identity{}, s.unavailable(ctx, gocql.UUID{}, false, err)
		}
	}
}

// accept stores one valid message.
func (s *Service) accept(ctx context.Context, n *NewMessage, id identity, client string) (Accepted, error) {
	at, _ := n.deliverAt(id.createdAt)
	m := n.message(id, client, at)
	out := Accepted{ID: id.id, State: Queued, CreatedAt: id.createdAt}
	// The first request decides the path of a message. A retry that took the other
	// path because the time has passed would leave the message in the outbox and
	// in the schedule, where it could still be cancelled.
	later := at.After(id.createdAt)
	if later {
		out.State, out.DeliverAt = Scheduled, m.DeliverAt
	}
	if id.retried {
		// An existing message is unchanged, in any state.
		var state State
		var found bool
		err := s.try(ctx, func(ctx context.Context) (err error) {
			state, found, err = s.readState(ctx, id.id)
			return err
		})
		if err != nil {
			return Accepted{}, s.unavailable(ctx, id.id, true, err)
		}
		out.Replayed = found
		if found && state != Scheduled {
			return out, nil
		}
		// A scheduled message is written again to complete it.
	}
	err := s.storePayload(ctx, &m, id)
	switch {
	case err != nil:
	case later:
		err = s.write(ctx, id, func(ctx context.Context, _ int64) error { return s.schedule.Put(ctx, &m, s.cfg.Clock.Now()) })
	default:
		e := m.Event()
		e.DeliverAt = time.Time{}
		if err = s.write(ctx, id, func(ctx context.Context, micros int64) error { return s.store.insert(ctx, &e, micros) }); err == nil {
			if s.cfg.Hints != nil {
				s.cfg.Hints.Committed(outbox.IDFromUUID(id.id))
			}
			if s.cfg.Logger.Enabled(ctx, slog.LevelDebug) {
				s.cfg.Logger.DebugContext(ctx, "event stored", "event_id", id.id, "type", e.Type)
			}
		}
	}
	if err != nil {
		return Accepted{ID: id.id}, err
	}
	return out, nil
}

// readState returns the stored state of a message.
func (s *Service) readState(ctx context.Context, id gocql.UUID) (State, bool, error) {
	m, err := s.schedule.Read(ctx, id)
	if err == nil {
		return ofSchedule[m.State], true, nil
	}
	if !errors.Is(err, schedule.ErrNotFound) {
		return "", false, err
	}
	_, found, err := s.store.event(ctx, id)
	return Queued, found, err
}

// write retries until one attempt is known to have succeeded.
//
// A write timeout leaves the outcome unknown, so write repeats it with the same
// ids, content and timestamp; the relay treats copies of a row as one event. A
// retried request gets a new timestamp, since its row must not be older than
// the position of the relay's sweep reader.
func (s *Service) write(ctx context.Context, id identity, attempt func(ctx context.Context, micros int64) error) error {
	micros := id.createdAt.UnixMicro()
	if id.retried {
		micros = s.cfg.Clock.Now().UnixMicro()
	}
	unknown := id.retried
	for wait := newPause(ctx, s.cfg.AttemptTimeout); ; {
		err := s.try(ctx, func(ctx context.Context) error { return attempt(ctx, micros) })
		fate := guard.ClassifyFate(err)
		s.metrics.attempts.WithLabelValues(fate.String()).Inc()
		switch {
		case fate == cqlcode.Done:
			return nil
		case fate == cqlcode.Unknown:
			unknown = true
		case fate == cqlcode.Invalid && micros != 0:
			// ScyllaDB rejects timestamps before the current CDC generation and those too
			// far ahead of its clock. A server-side timestamp avoids both.
			micros = 0
			continue
		}
		if !unknown || !wait.Pause() {
			return s.unavailable(ctx, id.id, unknown, err)
		}
	}
}

// try makes one attempt, unless the breaker is open.
func (s *Service) try(ctx context.Context, attempt func(context.Context) error) error {
	ctx, done, err := s.guard.Call(ctx)
	if err != nil {
		return err
	}
	err = attempt(ctx)
	done(err)
	return err
}

func (s *Service) unavailable(ctx context.Context, id gocql.UUID, unknown bool, err error) error {
	// The log already contains the reason of an open breaker; a disconnected
	// client needs no entry.
	if !errors.Is(err, guard.ErrOpen) && !httpapi.HungUp(ctx, err) {
		s.cfg.Logger.WarnContext(ctx, "database unavailable", "event_id", id, "outcome_unknown", unknown, "err", err)
	}
	return &UnavailableError{ID: id, Unknown: unknown, RetryAfter: s.guard.RetryAfter(err, s.cfg.RetryAfter), Err: err}
}

// detach returns a context that outlives that of the caller.
func (s *Service) detach(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), s.cfg.WriteBudget+s.cfg.AttemptTimeout)
}

// newPause returns the remaining budget of a detached ctx, minus one attempt.
func newPause(ctx context.Context, attempt time.Duration) *retry.Budget {
	end, _ := ctx.Deadline()
	return retry.Until(ctx, end.Add(-attempt), 50*time.Millisecond)
}

// maxKey bounds an Idempotency-Key.
const maxKey = 255

func validateKey(key string) error {
	if len(key) > maxKey || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return jsonform.Invalid("header.Idempotency-Key", "must be at most 255 printable ASCII characters without spaces")
	}
	return nil
}
