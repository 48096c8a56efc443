package schema

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/internal/lease"
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

// newLock returns the lock as the lease of one run: two in one process must not confuse theirs.
func (m *migrator) newLock() *lease.Lease {
	return &lease.Lease{
		Table: m.options.Keyspace + ".schema_locks", Name: lockName, TTL: m.options.LockTTL,
		Owner: m.options.Owner + "/" + gocql.TimeUUID().String(),
		Apply: func(ctx context.Context, stmt string, args ...any) (bool, error) {
			return m.session.Query(stmt, args...).WithContext(ctx).Consistency(gocql.Quorum).SerialConsistency(gocql.Serial).MapScanCAS(map[string]any{})
		},
	}
}

// withLock runs f once it holds the lock, which it awaits until Options.LockWait has passed; the
// context of f ends if the lock is lost.
func (m *migrator) withLock(ctx context.Context, f func(context.Context) error) error {
	l, wait := m.newLock(), m.options.LockWait
	deadline := time.Now().Add(wait)
	for {
		held := false
		err := l.Hold(ctx, func(ctx context.Context) error { held = true; return f(ctx) })
		switch {
		case held && errors.Is(err, lease.ErrLost):
			return errors.Join(ErrLockLost, err)
		case held:
			return err
		case err != nil && (!cqlcode.Transient(err) || time.Now().After(deadline)):
			return fmt.Errorf("acquire the migration lock: %w", err)
		case time.Now().After(deadline):
			holder, err := readLockHolder(ctx, m.session, m.options.Keyspace)
			if err != nil {
				return err
			}
			return fmt.Errorf("acquire the migration lock: held by %s for longer than %s", holder, wait)
		}
		if err := retry.Wait(ctx, lockPoll*3/4+rand.N(lockPoll/2)); err != nil {
			return fmt.Errorf("acquire the migration lock: %w", err)
		}
	}
}

// readLockHolder returns the owner of the lock, empty for none.
func readLockHolder(ctx context.Context, s *gocql.Session, keyspace string) (owner string, err error) {
	err = s.Query("SELECT owner FROM "+keyspace+".schema_locks WHERE name = ?", lockName).WithContext(ctx).Consistency(gocql.Quorum).Scan(&owner)
	if err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return "", fmt.Errorf("read the migration lock: %w", err)
	}
	return owner, nil
}
