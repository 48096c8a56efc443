package schema

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
)

// ErrLockLost reports that the lock could not be renewed in time, so that
// another instance may hold it now. This is harmless: every statement is
// idempotent.
var ErrLockLost = errors.New("migration lock lost: it could not be renewed before it expired")

// lockName is the one row of schema_locks.
const lockName = "migrate"

// lockPoll is the interval of attempts to acquire a held lock, with a jitter of
// a quarter.
const lockPoll = 300 * time.Millisecond

// lock is a row of schema_locks whose TTL is the lease. It expires by the clock
// of the server alone.
type lock struct {
	session *gocql.Session
	table   string
	owner   string // unique to this acquisition
	ttl     time.Duration
}

func newLock(s *gocql.Session, o Options) *lock {
	// Two runs in one process must not confuse their locks.
	return &lock{session: s, table: o.Keyspace + ".schema_locks", owner: o.Owner + "/" + gocql.TimeUUID().String(), ttl: o.LockTTL}
}

// acquire waits for the lock until wait has passed or ctx ends.
func (l *lock) acquire(ctx context.Context, wait time.Duration) error {
	stmt := fmt.Sprintf("INSERT INTO %s (name, owner, acquired_at) VALUES (?, ?, ?) IF NOT EXISTS USING TTL %d", l.table, l.ttl/time.Second)
	deadline := time.Now().Add(wait)
	var holder string
	for {
		row := map[string]any{}
		applied, err := l.query(ctx, stmt, lockName, l.owner, time.Now()).MapScanCAS(row)
		if err == nil {
			holder, _ = row["owner"].(string)
			// A row of our own is an earlier attempt that timed out and was applied.
			if applied || holder == l.owner {
				return nil
			}
		} else if !cqlcode.Transient(err) {
			return fmt.Errorf("acquire the migration lock: %w", err)
		}
		if time.Now().After(deadline) {
			if err != nil {
				return fmt.Errorf("acquire the migration lock: %w", err)
			}
			return fmt.Errorf("acquire the migration lock: held by %s for longer than %s", holder, wait)
		}
		if err := retry.Wait(ctx, lockPoll*3/4+rand.N(lockPoll/2)); err != nil {
			return fmt.Errorf("acquire the migration lock: %w", err)
		}
	}
}

// keep renews the lock until ctx ends. It calls cancel with ErrLockLost once
// the lease may have expired.
func (l *lock) keep(ctx context.Context, cancel context.CancelCauseFunc) {
	stmt := fmt.Sprintf("UPDATE %s USING TTL %d SET owner = ?, acquired_at = ? WHERE name = ? IF owner = ?", l.table, l.ttl/time.Second)
	// TTLs are in whole seconds, so the lease may end up to one second early: with
	// the minimum TTL of 3 s exactly after two thirds of it.
	renewed := time.Now()
	for retry.Wait(ctx, l.ttl/3) == nil {
		sent := time.Now()
		applied, err := l.query(ctx, stmt, l.owner, sent, lockName, l.owner).MapScanCAS(map[string]any{})
		switch {
		case err == nil && applied:
			renewed = sent
		case err == nil || time.Since(renewed) > l.ttl*2/3:
			cancel(ErrLockLost)
			return
		}
	}
}

// release deletes the lock. If it fails, the lease expires.
func (l *lock) release(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_, err := l.query(ctx, fmt.Sprintf("DELETE FROM %s WHERE name = ? IF owner = ?", l.table), lockName, l.owner).MapScanCAS(map[string]any{})
	if err != nil {
		return fmt.Errorf("release the migration lock: %w", err)
	}
	return nil
}

func (l *lock) query(ctx context.Context, stmt string, args ...any) *gocql.Query {
	return l.session.Query(stmt, args...).WithContext(ctx).Consistency(gocql.Quorum).SerialConsistency(gocql.Serial)
}
