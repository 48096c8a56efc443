package dlq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/sync/semaphore"

	"github.com/scylla-outbox/scylla-outbox/dlq/internal/db"
	"github.com/scylla-outbox/scylla-outbox/internal/clocks"
	"github.com/scylla-outbox/scylla-outbox/internal/lease"
	"github.com/scylla-outbox/scylla-outbox/internal/sessions"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Defaults of Open.
const (
	// DefaultMaxReplays is the number of failed automatic replays after which a dead
	// letter is failed.
	DefaultMaxReplays = 5
	// DefaultAttemptTimeout bounds one statement.
	DefaultAttemptTimeout = 3 * time.Second
	// DefaultBudget bounds the retries of a change.
	DefaultBudget = 10 * time.Second
)

// DefaultDelays are the delays before the first, second … automatic replay of a dead
// letter, unless the relay chooses another time.
var DefaultDelays = []time.Duration{time.Minute, 5 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour}

// Delay returns the delay after the given number of failed replays.
func Delay(replays int) time.Duration {
	return DefaultDelays[min(max(replays, 0), len(DefaultDelays)-1)]
}

// Store contains the dead letters of one keyspace. It is safe for concurrent use, by
// any number of processes.
type Store struct {
	db    *db.DB
	stmt  statements
	lists lists
	edits edits
	marks requestMarks
	reads *semaphore.Weighted // of dead letters by id
}

// Option changes a Store.
type Option func(*Store)

// WithSerialConsistency sets the consistency of lightweight transactions: gocql.Serial,
// the default, or gocql.LocalSerial if every process that changes dead letters is in
// one data centre.
func WithSerialConsistency(c gocql.Consistency) Option { return func(s *Store) { s.db.Serial = c } }

// WithConsistency is that of plain reads and writes. Default LOCAL_QUORUM.
func WithConsistency(c gocql.Consistency) Option { return func(s *Store) { s.db.Consistency = c } }

// WithTimeouts bounds one statement, and the retries of one change.
func WithTimeouts(attempt, budget time.Duration) Option {
	return func(s *Store) { s.db.Timeout, s.db.Budget = attempt, budget }
}

// WithClock is the clock; it decides when claims expire. Default that of the host.
func WithClock(c clocks.Clock) Option { return func(s *Store) { s.db.Clock = c } }

// Fence decides whether a Store may write.
type Fence = db.Fence

// WithFence checks f before each statement that writes or changes a dead letter or
// removes a request. If the check returns an error, nothing is written and nothing is retried,
// because another process may own the rows; the error is in the chain of the returned
// one. The default is no fence.
func WithFence(f Fence) Option { return func(s *Store) { s.db.Fence = f } }

// WithLogger sets the logger for failures that are not the caller's. The default
// discards them.
func WithLogger(l *slog.Logger) Option { return func(s *Store) { s.db.Log = l } }

// Now returns the time by the store's clock.
func (s *Store) Now() time.Time { return s.db.Clock.Now() }

// Open returns the store of a keyspace. It executes no statement; package schema
// creates the tables.
func Open(session *gocql.Session, keyspace string, opts ...Option) (*Store, error) {
	if _, err := outbox.NewTable(keyspace, ""); err != nil {
		return nil, fmt.Errorf("dead letters: keyspace %q: %w", keyspace, err)
	}
	d := &db.DB{
		Session: session, Keyspace: keyspace, Consistency: gocql.LocalQuorum, Serial: gocql.Serial, Timeout: DefaultAttemptTimeout,
		Budget: DefaultBudget, Clock: clocks.System{}, Log: slog.New(slog.DiscardHandler),
	}
	s := &Store{db: d, stmt: newStatements(keyspace), lists: lists{db: d, stmt: newListStatements(keyspace)}, edits: edits{d, newEditStatements(keyspace)}, reads: semaphore.NewWeighted(manyReads)}
	for _, o := range opts {
		o(s)
	}
	var errs []error
	if !d.Serial.IsSerial() {
		errs = append(errs, fmt.Errorf("serial consistency %s: use SERIAL or LOCAL_SERIAL", d.Serial))
	}
	if d.Timeout <= 0 || d.Budget < d.Timeout {
		errs = append(errs, fmt.Errorf("timeouts %s and %s: must be positive, the budget not below the attempt", d.Timeout, d.Budget))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("dead letters: %w", err)
	}
	return s, nil
}

// DB executes the store's statements. It is for the packages below this one.
func (s *Store) DB() *db.DB { return s.db }

// PrepareReads prepares the statements of lists and counts concurrently, so that the first ones of a process take as
// few round trips as later ones. It is for a session whose requests all go to one node, returns once the database has
// answered or ctx has ended, and has no error: a statement that was not prepared is prepared by its execution.
func (s *Store) PrepareReads(ctx context.Context) {
	l := &s.lists.stmt
	sessions.Prepare(ctx, s.db.Session, s.stmt.entries, s.stmt.errors, s.stmt.holds, l.buckets, l.allBuckets, l.lookups, l.lookupFirst, l.lookupSizes)
}

// Duty returns the duty of a name for an owner, which must be different in every
// process. A claim lasts ttl, whole seconds, at least one.
func (s *Store) Duty(name, owner string, ttl time.Duration) (*Duty, error) {
	if name == "" || owner == "" || ttl < time.Second {
		return nil, fmt.Errorf("duty %q of %q for %s: it needs a name, an owner and at least a second", name, owner, ttl)
	}
	l := &lease.Lease{Table: s.db.Keyspace + ".dead_letter_duties", Name: name, Owner: owner, TTL: ttl, Apply: s.db.Apply}
	return &Duty{Lease: l, s: s}, nil
}
