package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/clocks"
	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Errors of a Store. The subscriptions' own are subscriptions.ErrNotFound and ErrVersion.
var (
	// ErrFenced is returned by writes with an epoch that is not the current one: another
	// owner has claimed the partition. Nothing was written and nothing will be; together
	// with ErrUnknown, the write may have been applied before the claim.
	ErrFenced = errors.New("another instance has claimed the partition")
	// ErrUnknown is returned when the database has not answered in time: the change may
	// be applied, now or later. Repeat it.
	ErrUnknown = errors.New("the outcome of the change is unknown")
	// ErrNoRecord is returned by Record for a message that is not stored.
	ErrNoRecord = errors.New("the message is not stored")
)

// Defaults of Open.
const (
	// DefaultAttemptTimeout bounds one statement.
	DefaultAttemptTimeout = 3 * time.Second
	// DefaultBudget bounds the retries of one change.
	DefaultBudget = 10 * time.Second
)

const firstPause = 20 * time.Millisecond

// Store is the state of the subscriptions of a keyspace. It is safe for concurrent use, by
// any number of processes. The writes of one partition are executed one after the other.
// The caller closes the session.
type Store struct {
	session             *gocql.Session
	consistency, serial gocql.Consistency
	timeout, budget     time.Duration
	clock               clocks.Clock
	stmt                statements

	mu struct {
		sync.Mutex
		partitions map[Partition]*partition
	}
}

// Option changes a Store.
type Option func(*Store)

// WithConsistency sets the consistency of plain reads and writes. Default LOCAL_QUORUM.
func WithConsistency(c gocql.Consistency) Option { return func(s *Store) { s.consistency = c } }

// WithSerialConsistency sets the consistency of lightweight transactions and of reads that
// see all of them: gocql.Serial, the default, or gocql.LocalSerial if all instances are in
// one data centre.
func WithSerialConsistency(c gocql.Consistency) Option { return func(s *Store) { s.serial = c } }

// WithTimeouts bounds one statement, and the retries of one change.
func WithTimeouts(attempt, budget time.Duration) Option {
	return func(s *Store) { s.timeout, s.budget = attempt, budget }
}

// WithClock sets the clock of CreatedAt, ChangedAt and Seek.At. Default that of
// the host.
func WithClock(c clocks.Clock) Option { return func(s *Store) { s.clock = c } }

// Open returns the store of a keyspace. It executes no statement; package schema creates
// the tables.
func Open(session *gocql.Session, keyspace string, opts ...Option) (*Store, error) {
	if _, err := outbox.NewTable(keyspace, ""); err != nil {
		return nil, fmt.Errorf("subscriptions: keyspace %q: %w", keyspace, err)
	}
	s := &Store{
		session: session, consistency: gocql.LocalQuorum, serial: gocql.Serial, timeout: DefaultAttemptTimeout, budget: DefaultBudget,
		clock: clocks.System{}, stmt: newStatements(keyspace),
	}
	s.mu.partitions = make(map[Partition]*partition)
	for _, o := range opts {
		o(s)
	}
	var errs []error
	if !s.serial.IsSerial() {
		errs = append(errs, fmt.Errorf("serial consistency %s: use SERIAL or LOCAL_SERIAL", s.serial))
	}
	if s.timeout <= 0 || s.budget < s.timeout {
		errs = append(errs, fmt.Errorf("timeouts %s and %s: must be positive, the budget not below the attempt", s.timeout, s.budget))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("subscriptions: %w", err)
	}
	return s, nil
}

func (s *Store) query(ctx context.Context, stmt string, args ...any) *gocql.Query {
	return s.session.Query(stmt, args...).WithContext(ctx).Consistency(s.consistency).Idempotent(true).
		RetryPolicy(cqlcode.OtherNode{}).DefaultTimestamp(false)
}

// serialRead returns a read that sees every decided change, and prevents undecided ones
// that began before it.
func (s *Store) serialRead(ctx context.Context, stmt string, args ...any) *gocql.Query {
	return s.query(ctx, stmt, args...).Consistency(s.serial)
}

// withTimeout executes f with the timeout of one statement.
func (s *Store) withTimeout(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return f(ctx)
}

// swap executes a conditional statement once and returns whether it was applied.
func (s *Store) swap(ctx context.Context, stmt string, args ...any) (applied bool, err error) {
	err = s.withTimeout(ctx, func(ctx context.Context) error {
		applied, err = s.session.Query(stmt, args...).WithContext(ctx).Consistency(s.consistency).SerialConsistency(s.serial).
			RetryPolicy(cqlcode.NeverAgain{}).DefaultTimestamp(false).MapScanCAS(map[string]any{})
		return err
	})
	return applied, err
}

// until repeats f within the budget while it fails with an error that a retry may help.
func (s *Store) until(ctx context.Context, f func() error) error {
	for budget := s.retry(ctx); ; {
		err := f()
		if err == nil || errors.Is(err, gocql.ErrNotFound) || permanent(err) || !budget.Pause() {
			return err
		}
	}
}

func (s *Store) retry(ctx context.Context) *retry.Budget {
	return retry.Until(ctx, time.Now().Add(s.budget), firstPause)
}

func permanent(err error) bool {
	return cqlcode.ClassifyFate(err) == cqlcode.Invalid || errors.Is(err, gocql.ErrSessionClosed)
}

// millis is the current time in milliseconds, the resolution of the tables.
func (s *Store) millis() time.Time { return s.clock.Now().UTC().Truncate(time.Millisecond) }

// orNull returns the time, or null for the zero time.
func orNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t
}

// utc returns a time that was read.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC()
}
