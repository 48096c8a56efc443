package db

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/clocks"
	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
)

// DB is one keyspace and the way in which its statements are executed. It is safe
// for concurrent use while its fields do not change.
type DB struct {
	Session  *gocql.Session
	Keyspace string
	// Consistency is that of plain reads and writes, Serial that of lightweight
	// transactions.
	Consistency, Serial gocql.Consistency
	// Timeout bounds one statement, Budget the retries of one change.
	Timeout, Budget time.Duration
	// Clock is the clock.
	Clock clocks.Clock
	// Fence, unless nil, is checked before each write of a dead letter; with an error
	// nothing is written.
	Fence Fence
	// Log receives failures that the caller does not see.
	Log *slog.Logger
}

// Fence decides whether dead letters may be written. It is safe for concurrent use.
type Fence interface {
	// Check returns an error once another process may own the rows.
	Check() error
}

// ErrFenced is in the chain of the error of each write that Fence prevented.
var ErrFenced = errors.New("another process may own the rows")

// Query returns a statement without a client timestamp: with the timestamp of an
// operator's host whose clock is ahead, a request or a hold would outlast its
// removal by another process.
func (d *DB) Query(ctx context.Context, stmt string, args ...any) *gocql.Query {
	return d.Session.Query(stmt, args...).WithContext(ctx).Consistency(d.Consistency).RetryPolicy(neverAgain{}).DefaultTimestamp(false)
}

// Select is Query for a statement that only reads. The driver may send it to a
// second node.
func (d *DB) Select(ctx context.Context, stmt string, args ...any) *gocql.Query {
	return d.Query(ctx, stmt, args...).Idempotent(true).RetryPolicy(otherNode{})
}

// Rows returns all rows of a statement that only reads; dest returns the destinations of a row.
func Rows[T any](ctx context.Context, d *DB, dest func(*T) []any, stmt string, args ...any) (out []T, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	iter := d.Select(ctx, stmt, args...).Prefetch(0).Iter()
	for {
		var row T
		if !iter.Scan(dest(&row)...) {
			return out, iter.Close()
		}
		out = append(out, row)
	}
}

// Column is dest of Rows for a statement that selects one column.
func Column[T any](v *T) []any { return []any{v} }

// Write executes a write that may be repeated.
func (d *DB) Write(ctx context.Context, stmt string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	return d.Query(ctx, stmt, args...).Idempotent(true).Exec()
}

// Apply executes a lightweight transaction and returns whether it was applied.
func (d *DB) Apply(ctx context.Context, stmt string, args ...any) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	return d.Query(ctx, stmt, args...).SerialConsistency(d.Serial).MapScanCAS(map[string]any{})
}

// Batch returns an unlogged batch: its rows are in several partitions, and each is
// correct or checked by itself. A batch saves round trips, and all of it may be
// repeated.
func (d *DB) Batch() *gocql.Batch {
	b := d.Session.Batch(gocql.UnloggedBatch).RetryPolicy(neverAgain{})
	b.SetConsistency(d.Consistency)
	b.DefaultTimestamp(false)
	return b
}

// Execute executes a batch unless the fence prevents it.
func (d *DB) Execute(ctx context.Context, b *gocql.Batch) error {
	if err := d.CheckFence(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	return b.WithContext(ctx).Exec()
}

// CheckFence returns nil if dead letters may be written, and else an error with
// ErrFenced in its chain.
func (d *DB) CheckFence() error {
	if d.Fence == nil {
		return nil
	}
	if err := d.Fence.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrFenced, err)
	}
	return nil
}

// Millis is the current time in milliseconds, the resolution of the tables.
func (d *DB) Millis() time.Time { return d.Clock.Now().UTC().Truncate(time.Millisecond) }

// ServerTime returns the time of the clock of a database node.
func (d *DB) ServerTime(ctx context.Context) (now time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	if err := d.Select(ctx, "SELECT toTimestamp(now()) FROM system.local").Scan(&now); err != nil {
		return now, fmt.Errorf("read the clock of the database: %w", err)
	}
	return now, nil
}

// firstPause is between the first two attempts of a change.
const firstPause = 20 * time.Millisecond

// Retry returns the budget for the retries of one change.
func (d *DB) Retry(ctx context.Context) *retry.Budget {
	return retry.Until(ctx, time.Now().Add(d.Budget), firstPause)
}

// Permanent reports whether a retry cannot help: the statement is invalid or
// forbidden, the session is closed, or the fence prevents the write.
func Permanent(err error) bool {
	switch cqlcode.Of(err) {
	case gocql.ErrCodeInvalid, gocql.ErrCodeSyntax, gocql.ErrCodeUnauthorized, gocql.ErrCodeConfig, gocql.ErrCodeProtocol, gocql.ErrCodeCredentials:
		return true
	}
	return errors.Is(err, gocql.ErrSessionClosed) || errors.Is(err, ErrFenced)
}

// NullTime returns t, or null for the zero time.
func NullTime(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t
}
