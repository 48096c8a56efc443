// Package lease lets one process at a time work for all. A lease is a row of a table
// with the columns name and owner, written by conditional statements with a TTL: the
// server's clock alone decides when it expires, and the lease of a process that died
// expires by itself.
//
// It does not fence: what the owner writes must be safe when another process has the
// lease by then. schema waits for its own lock, whose row names the holder since when;
// the shards of relay/share are leases of a Kafka consumer group (docs/adr/0009).
package lease

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Lease is a lease for one owner.
type Lease struct {
	// Table has the row, Name is its key.
	Table, Name string
	// Owner must be different in every process.
	Owner string
	// TTL is how long a lease lasts unless it is renewed: whole seconds, at least one.
	TTL time.Duration
	// Apply executes a conditional statement and returns whether it was applied.
	Apply func(ctx context.Context, stmt string, args ...any) (bool, error)
}

// Take takes the lease, or renews the owner's to end TTL from now. False means that
// another process has it. After an error it is not known who has the lease: do not
// act, and take it again.
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

// Leave gives the lease back, if the owner has it.
func (l *Lease) Leave(ctx context.Context) error {
	if _, err := l.Apply(ctx, "UPDATE "+l.Table+" SET owner = null WHERE name = ? IF owner = ?", l.Name, l.Owner); err != nil {
		return fmt.Errorf("give lease %s back: %w", l.Name, err)
	}
	return nil
}

// Hold calls f if the lease can be taken, renews it while f runs, and ends f's context
// when another process may have it. Its error is f's; nil if another process has the lease.
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
				cancel(fmt.Errorf("another process may have lease %s by now", l.Name))
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
