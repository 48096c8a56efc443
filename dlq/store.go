package dlq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Defaults of Open.
const (
	// DefaultMaxReplays is after how many failed automatic replays a letter is failed.
	DefaultMaxReplays = 5
	// DefaultAttemptTimeout bounds one statement.
	DefaultAttemptTimeout = 3 * time.Second
	// DefaultBudget bounds how long a change is tried again.
	DefaultBudget = 10 * time.Second
)

// DefaultDelays are how long a letter waits before its first, second … automatic
// replay, unless the relay knows better.
var DefaultDelays = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour}

// Delay is how long a letter waits after so many failed replays.
func Delay(replays int) time.Duration {
	return DefaultDelays[min(max(replays, 0), len(DefaultDelays)-1)]
}

// Store is the dead letters of one keyspace. It is safe for concurrent use, by
// any number of processes.
type Store struct {
	session  *gocql.Session
	keyspace string
	cons     gocql.Consistency
	serial   gocql.Consistency
	timeout  time.Duration
	budget   time.Duration
	now      func() time.Time
	fence    func() error // nil never keeps anything back
	log      *slog.Logger
	stmt     statements
	buckets  bucketCache
	marks    requestMarks
}

// Option changes a Store.
type Option func(*Store)

// WithSerialConsistency chooses among whom changes are decided: gocql.Serial,
// the default, or gocql.LocalSerial if everything that changes letters is in
// one data centre.
func WithSerialConsistency(c gocql.Consistency) Option { return func(s *Store) { s.serial = c } }

// WithConsistency is that of plain reads and writes. Default LOCAL_QUORUM.
func WithConsistency(c gocql.Consistency) Option { return func(s *Store) { s.cons = c } }

// WithTimeouts bounds one statement, and how long a change is tried again.
func WithTimeouts(attempt, budget time.Duration) Option {
	return func(s *Store) { s.timeout, s.budget = attempt, budget }
}

// WithClock is the clock; it decides when claims run out. Default time.Now.
func WithClock(now func() time.Time) Option { return func(s *Store) { s.now = now } }

// WithFence is asked right before each statement that makes or changes a letter or
// takes a request off the list. With an error nothing is written, the error is in the
// chain of what is returned, and it is not tried again: somebody else may own what is
// written about. Default asks nobody.
func WithFence(f func() error) Option { return func(s *Store) { s.fence = f } }

// WithLogger gets what went wrong and was not an error of the caller's. Default
// discards.
func WithLogger(l *slog.Logger) Option { return func(s *Store) { s.log = l } }

// Open returns the store of a keyspace. It reaches no database; the tables are
// those of package schema.
func Open(session *gocql.Session, keyspace string, opts ...Option) (*Store, error) {
	if _, err := outbox.NewTable(keyspace, ""); err != nil {
		return nil, fmt.Errorf("dead letters: keyspace %q: %w", keyspace, err)
	}
	s := &Store{
		session: session, keyspace: keyspace, cons: gocql.LocalQuorum, serial: gocql.Serial, timeout: DefaultAttemptTimeout,
		budget: DefaultBudget, now: time.Now, log: slog.New(slog.DiscardHandler),
		stmt: newStatements(keyspace),
	}
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
		return nil, fmt.Errorf("dead letters: %w", err)
	}
	return s, nil
}

// query is a statement with the database's time: with an operator's, whose clock may be
// ahead, a request or a hold would outlast its removal by another process.
func (s *Store) query(ctx context.Context, stmt string, args ...any) *gocql.Query {
	return s.session.Query(stmt, args...).WithContext(ctx).Consistency(s.cons).RetryPolicy(neverAgain{}).DefaultTimestamp(false)
}

// may says whether anything may be written.
func (s *Store) may() error {
	if s.fence == nil {
		return nil
	}
	if err := s.fence(); err != nil {
		return fmt.Errorf("%w: %w", errBehindFence, err)
	}
	return nil
}

// selects is query for a statement that changes nothing, which another node may be
// asked once more.
func (s *Store) selects(ctx context.Context, stmt string, args ...any) *gocql.Query {
	return s.query(ctx, stmt, args...).Idempotent(true).RetryPolicy(otherNode{})
}

// millis is now as the tables keep it.
func (s *Store) millis() time.Time { return s.now().UTC().Truncate(time.Millisecond) }

// firstPause is between the first two attempts of a change.
const firstPause = 20 * time.Millisecond

// again is the time in which something is tried again.
func (s *Store) again(ctx context.Context) *retry.Budget {
	return retry.Until(ctx, time.Now().Add(s.budget), firstPause)
}
