// Package lease lets one process at a time work for all. A lease is a row of a table
// with the columns name and owner, written by conditional statements with a TTL. The
// server's clock alone decides when it expires, and the lease of a crashed process
// expires by itself.
//
// A lease does not fence: the writes of an owner must be safe when another process has
// taken the lease in the meantime. The shards of relay/share are leases of a Kafka
// consumer group (docs/adr/0009).
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
	// TTL is how long a lease lasts unless it is renewed: whole seconds, at least one, and three with
	// Hold. The server ends it up to one second early.
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

// ErrLost means that a lease could not be renewed in time, so that another process may have it.
var ErrLost = errors.New("it could not be renewed before it expired, and another process may have it")

// Hold calls f if the lease can be taken, renews it while f runs, and cancels the context of f with
// ErrLost before another process can have it, also while the database does not answer. It returns the
// error of f; nil if another process has the lease.
func (l *Lease) Hold(ctx context.Context, f func(context.Context) error) error {
	taken := time.Now()
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
		lose := func() { cancel(fmt.Errorf("lease %s: %w", l.Name, ErrLost)) }
		for renewed := taken; ; {
			end := renewed.Add(l.TTL * 2 / 3)
			select {
			case <-work.Done():
				return
			case <-time.After(time.Until(end)):
				lose()
				return
			case <-t.C:
			}
			sent := time.Now()
			asking, stop := context.WithDeadline(work, end)
			mine, err := l.Take(asking)
			stop()
			switch {
			case err == nil && mine:
				renewed = sent
			case err == nil:
				lose()
				return
			}
		}
	}()
	err = f(work)
	if cause := context.Cause(work); err != nil && errors.Is(cause, ErrLost) {
		err = errors.Join(cause, err)
	}
	cancel(nil)
	<-done
	_ = l.Leave(context.WithoutCancel(ctx)) // otherwise it expires by itself
	return err
}
