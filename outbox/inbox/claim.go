package inbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox/internal/attempt"
)

// claim is one call of Do.
type claim struct {
	*Once
	id    string
	owner gocql.UUID
}

// entry is the row of an id.
type entry struct {
	exists bool
	owner  gocql.UUID
	done   bool
	result []byte
	// until is the earliest end of the row, left the time until its latest end.
	until time.Time
	left  time.Duration
}

// acquire returns the stored result, or acquires the lease.
func (c *claim) acquire(ctx context.Context) (entry, error) {
	began := time.Now()
	for attempts := 1; ; attempts++ {
		sent := time.Now()
		var e entry
		applied, err := c.change(ctx, &e, c.insert, c.id, c.owner)
		if applied {
			return entry{until: sent.Add(c.cfg.Lease - margin)}, nil
		}
		failed := err
		if !e.done && !attempt.Invalid(err) {
			e, err = c.lookup(ctx)
		}
		switch {
		case attempt.Invalid(err):
			return e, fmt.Errorf("inbox: the lease of %q in %s is refused: %w", c.id, c.table, err)
		case err == nil && (e.done || e.exists && e.owner == c.owner): // the latter if a response was lost
			return e, nil
		case err == nil && e.exists:
			if time.Since(began) >= c.cfg.Wait {
				return e, &BusyError{ID: c.id, Left: e.left}
			}
			if err := attempt.Sleep(ctx, min(max(e.left, attempt.FirstPause), attempt.MaxPause, c.cfg.Wait-time.Since(began))); err != nil {
				return e, fmt.Errorf("inbox: wait for the effect of %q: %w", c.id, err)
			}
			attempts = 0
			continue
		}
		// Without a row the other lease expired between the statements.
		if err := c.again(ctx, attempts, failed, err); err != nil {
			return e, fmt.Errorf("inbox: acquire the lease of %q: %w", c.id, err)
		}
	}
}

// store stores the result of an effect that ran. It retries until ctx ends, because
// without a result the effect runs again.
func (c *claim) store(ctx context.Context, result []byte) error {
	for attempts := 1; ; attempts++ {
		var e entry
		applied, failed := c.change(ctx, &e, c.finish, c.owner, result, c.id, c.owner)
		if applied {
			return nil
		}
		e, err := c.lookup(ctx)
		switch {
		case attempt.Invalid(failed), attempt.Invalid(err):
			err = errors.Join(failed, err)
		case err == nil && e.owner == c.owner && e.done:
			return nil
		case err == nil && e.owner != c.owner:
			err = errLeaseEnded
		default:
			end := attempt.Pause(ctx, attempts)
			if end == nil {
				continue
			}
			err = errors.Join(end, failed, err)
		}
		return fmt.Errorf("inbox: the effect of %q ran, and its result is not stored; the next delivery runs it again: %w", c.id, err)
	}
}

// free releases the lease. If that fails, the lease expires.
func (c *claim) free(ctx context.Context) {
	for attempts := 1; ; attempts++ {
		var e entry
		if _, err := c.change(ctx, &e, c.release, c.id, c.owner); err == nil || attempt.Invalid(err) || c.again(ctx, attempts, err, nil) != nil {
			return
		}
	}
}

// again pauses before another attempt, or returns the reason why there is none.
func (c *claim) again(ctx context.Context, attempts int, failed, err error) error {
	if attempts == attempt.Max {
		return fmt.Errorf("outcome unknown after %d attempts: %w", attempts, errors.Join(failed, err))
	}
	if end := attempt.Pause(ctx, attempts); end != nil {
		return errors.Join(end, failed, err)
	}
	return nil
}

// change executes a conditional statement. A statement that is not applied fills e, as
// far as the statement returns the row.
func (c *claim) change(ctx context.Context, e *entry, stmt string, args ...any) (applied bool, err error) {
	var done *bool
	row := map[string]any{"done": &done, "result": &e.result}
	applied, err = c.session.Query(stmt, args...).WithContext(ctx).RetryPolicy(attempt.Never{}).
		SerialConsistency(attempt.Serial(c.cfg.LocalSerial)).DefaultTimestamp(false).MapScanCAS(row)
	e.done = !applied && err == nil && done != nil && *done
	return applied, err
}

// lookup reads the row of the id. The serial read carries out a round that was decided
// only.
func (c *claim) lookup(ctx context.Context) (e entry, err error) {
	sent := time.Now()
	var done *bool
	var ttl *int
	iter := c.session.Query(c.read, c.id).WithContext(ctx).Consistency(gocql.Consistency(attempt.Serial(c.cfg.LocalSerial))).Idempotent(true).Iter()
	e.exists = iter.Scan(&e.owner, &done, &e.result, &ttl)
	if err := iter.Close(); err != nil {
		return entry{}, err
	}
	e.done = done != nil && *done
	if ttl != nil {
		e.left = time.Duration(*ttl) * time.Second
		e.until = sent.Add(e.left - margin)
	}
	return e, nil
}
