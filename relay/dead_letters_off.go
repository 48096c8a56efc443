package relay

import (
	"context"
	"fmt"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
)

// untilRead retries a read that the start needs while the database is unavailable, and
// logs each failure. The error is Fatal, or the cause of the end of ctx.
func (r *Relay) untilRead(ctx context.Context, cannot string, read func() error) error {
	defer r.setStuck(nil)
	for attempt := 1; ; attempt++ {
		err := read()
		if err != nil {
			r.setStuck(fmt.Errorf("%s: %w", cannot, err))
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case failure.Classify(err) == failure.Fatal:
			return err
		}
		r.log.Warn(cannot, "attempt", attempt, "err", err)
		if err := retry.Wait(ctx, retry.Required(r.cfg.RetryMin, r.cfg.RetryMax, attempt)); err != nil {
			return err
		}
	}
}

// OpenDeadLettersError is returned by a start with dead letters off while dead letters are
// open. Later events of their aggregates would be published before them, and nothing
// would publish the dead letters. It is Fatal.
type OpenDeadLettersError struct {
	Table                  string
	DeadLetters, Unblocked int
}

// Error returns the number of open dead letters and the fix.
func (e *OpenDeadLettersError) Error() string {
	return fmt.Sprintf("dead letters are off, and %d of %s are open (%d of them unblocked): later events would overtake them, and they would not be published; "+
		"set relay.dead_letters to on, or settle them first (outbox dlq list, discard, resolve)", e.DeadLetters, e.Table, e.Unblocked)
}

// Class is Fatal: the relay cannot start until the dead letters are resolved.
func (e *OpenDeadLettersError) Class() failure.Class { return failure.Fatal }

// refuseDeadLetters rejects a start with dead letters off while some are open.
func (r *Relay) refuseDeadLetters(ctx context.Context) error {
	if r.cfg.DeadLetters != DeadLettersOff {
		return nil
	}
	store, err := dlq.Open(r.cfg.Session, r.cfg.Keyspace, dlq.WithLogger(r.log))
	if err != nil {
		return err
	}
	open := OpenDeadLettersError{Table: r.cfg.TableKeyspace + "." + r.cfg.Table}
	err = r.untilRead(ctx, "cannot read open dead letters; publishing is paused", func() error {
		open.DeadLetters, open.Unblocked = 0, 0
		return store.Chains(ctx, open.Table, func(e dlq.ChainEntry) error {
			open.DeadLetters++
			if e.Unblocked {
				open.Unblocked++
			}
			return nil
		})
	})
	switch {
	case cqlcode.Of(err) == gocql.ErrCodeInvalid:
		return nil // the schema has no dead letters
	case err != nil:
		return err
	case open.DeadLetters > open.Unblocked:
		return &open
	case open.Unblocked > 0:
		r.log.Warn("dead letters are off; unblocked dead letters are not published", "dead_letters", open.Unblocked)
	}
	return nil
}
