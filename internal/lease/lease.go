// Package lease lets one process at a time work for all. A lease is a row of a table
// with the columns name and owner, written by conditional statements with a TTL. The
// server's clock alone decides when it expires, and the lease of a crashed process
// expires by itself.
//
// A lease does not fence: the writes of an owner must be safe when another process has
// taken the lease in the meantime. schema has its own lock, whose row contains the
// holder and its start; the shards of relay/share are leases of a Kafka consumer group
// (docs/adr/0009).
package lease

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Lease is a lease for one owner.
type Lease struct {
	// Table contains the row, Name is its key.
	Table, Name string
	// Owner must be different in every process.
	Owner string
	// TTL is how long a lease lasts unless it is renewed: whole seconds, at least one.
	TTL time.Duration
	// Apply executes a conditional statement and returns whether it was applied.
	Apply func(ctx context.Context, stmt string, args ...any) (bool, error)
}

// Take takes the lease, or renews the owner's to end TTL from now. It returns false if
// another process has the lease. After an error the owner is unknown: do not act, and
// take it again.
func (l *Lease) Take(ctx context.Context) (bool, error) {
	stmt := "UPDATE " + l.Table + " USING TTL ? SET owner = ? WHERE name = ? IF owner = "
	seconds := int(l.TTL / time.Second)
	mine, err := l.Apply(ctx, stmt+"?", seconds, l.Owner, l.Name, l.Owner)
	if err == nil && !mine {
		mine, err = l.Apply(ctx, stmt+"null", seconds, l.Owner, l.Name)
	}
	if err != nil {
		return false, fmt.Errorf("take lease %s: %w", l.Name, err)
	}
	return mine, nil
}

// Leave releases the lease, if the owner has it.
func (l *Lease) Leave(ctx context.Context) error {
	if _, err := l.Apply(ctx, "UPDATE "+l.Table+" SET owner = null WHERE name = ? IF owner = ?", l.Name, l.Owner); err != nil {
		return fmt.Errorf("end lease %s: %w", l.Name, err)
	}
	return nil
}

// Hold calls f if the lease can be taken, renews it while f runs, and cancels the
// context of f when another process may have taken it. It returns the error of f; nil
// if another process has the lease.
func (l *Lease) Hold(ctx context.Context, f func(context.Context) error) error {
	mine, err := l.Take(ctx)
	if err != nil || !mine {
		return err
	}
	work, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(l.TTL / 4)
		defer t.Stop()
		for last := time.Now(); ; {
			select {
			case <-work.Done():
				return
			case <-t.C:
			}
			mine, err := l.Take(work)
			switch {
			case err == nil && mine:
				last = time.Now()
			case err == nil || time.Since(last) > l.TTL*3/4:
				cancel(fmt.Errorf("another process may have taken lease %s", l.Name))
				return
			}
		}
	}()
	err = f(work)
	if cause := context.Cause(work); err != nil && cause != nil && ctx.Err() == nil {
		err = errors.Join(cause, err)
	}
	cancel(nil)
	<-done
	_ = l.Leave(context.WithoutCancel(ctx)) // otherwise it expires by itself
	return err
}
