package dlq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"
)

// Duty is something that one process at a time does for all, such as sending
// notifications. The claim runs out by itself; what the next one needs to go on
// stays.
type Duty struct {
	s           *Store
	name, owner string
	ttl         time.Duration
}

// Duty returns the duty of a name for an owner, which must be different in every
// process. A claim lasts ttl, whole seconds, at least one.
func (s *Store) Duty(name, owner string, ttl time.Duration) (*Duty, error) {
	if name == "" || owner == "" || ttl < time.Second {
		return nil, fmt.Errorf("duty %q of %q for %s: it needs a name, an owner and at least a second", name, owner, ttl)
	}
	return &Duty{s: s, name: name, owner: owner, ttl: ttl}, nil
}

// Take claims the duty, or makes the owner's claim last ttl from now. False says
// that another process has it. If the answer is lost, the error says nothing
// about the claim: do not act, and take it again.
func (d *Duty) Take(ctx context.Context) (bool, error) {
	table := d.s.keyspace + ".dead_letter_duties"
	stmt := "UPDATE " + table + " USING TTL ? SET owner = ? WHERE name = ? IF owner = ?"
	seconds := int(d.ttl / time.Second)
	mine, err := d.cas(ctx, "take", stmt, seconds, d.owner, d.name, d.owner)
	if mine || err != nil {
		return mine, err
	}
	return d.cas(ctx, "take", "UPDATE "+table+" USING TTL ? SET owner = ? WHERE name = ? IF owner = null", seconds, d.owner, d.name)
}

// Leave gives the claim back, if the owner has it.
func (d *Duty) Leave(ctx context.Context) error {
	_, err := d.cas(ctx, "leave", "UPDATE "+d.s.keyspace+".dead_letter_duties SET owner = null WHERE name = ? IF owner = ?", d.name, d.owner)
	return err
}

// Hold calls f if the duty can be had, renews the claim meanwhile, and ends f's context
// when another process may have it. Its error is f's; nil if another process has the duty.
func (d *Duty) Hold(ctx context.Context, f func(context.Context) error) error {
	mine, err := d.Take(ctx)
	if err != nil || !mine {
		return err
	}
	work, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		t := time.NewTicker(d.ttl / 4)
		defer t.Stop()
		for last := time.Now(); ; {
			select {
			case <-work.Done():
				return
			case <-t.C:
			}
			mine, err := d.Take(work)
			switch {
			case err == nil && mine:
				last = time.Now()
			case err == nil || time.Since(last) > d.ttl*3/4:
				cancel(fmt.Errorf("another process may have duty %s by now", d.name))
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
	_ = d.Leave(context.WithoutCancel(ctx)) // otherwise the claim runs out by itself
	return err
}

// State is what Save kept last, by whomever; empty if nothing was.
func (d *Duty) State(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, d.s.timeout)
	defer cancel()
	var state string
	err := d.s.selects(ctx, "SELECT state FROM "+d.s.keyspace+".dead_letter_duties WHERE name = ?", d.name).Consistency(d.s.serial).Scan(&state)
	if err != nil && !errors.Is(err, gocql.ErrNotFound) {
		return "", fmt.Errorf("read the state of duty %s: %w", d.name, err)
	}
	return state, nil
}

// Save keeps state for whoever has the duty next. False says that the owner has
// it no more: nothing was kept, and what the owner does must stop.
func (d *Duty) Save(ctx context.Context, state string) (bool, error) {
	return d.cas(ctx, "save the state of", "UPDATE "+d.s.keyspace+".dead_letter_duties SET state = ? WHERE name = ? IF owner = ?", state, d.name, d.owner)
}

func (d *Duty) cas(ctx context.Context, what, stmt string, args ...any) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, d.s.timeout)
	defer cancel()
	applied, err := d.s.query(ctx, stmt, args...).SerialConsistency(d.s.serial).MapScanCAS(map[string]any{})
	if err != nil {
		return false, fmt.Errorf("%s duty %s: %w", what, d.name, err)
	}
	return applied, nil
}
