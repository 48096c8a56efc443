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

// untilRead reads what a start needs, however long the database is away, and
// says each time that it cannot. The error is Fatal, or the cause of ctx's end.
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
		if err := retry.Wait(ctx, r.cfg.askAgain(attempt)); err != nil {
			return err
		}
	}
}

// OpenLettersError says that a relay without dead letters was started while some
// are open. Newer events of their aggregates would pass them, and nobody would
// ever publish them. It is Fatal.
type OpenLettersError struct {
	Table             string
	Letters, Released int
}

// Error says how many there are and what to do.
func (e *OpenLettersError) Error() string {
	return fmt.Sprintf("dead letters are off, and %d of %s are open (%d of them released): later events of their aggregates would pass them, and nobody would publish them; "+
		"turn them on, or settle them first (outbox dlq list, discard, resolve)", e.Letters, e.Table, e.Released)
}

// Class is Fatal: the relay cannot start until the dead letters are resolved.
func (e *OpenLettersError) Class() failure.Class { return failure.Fatal }

// refuseLetters ends a start without dead letters where some are open.
func (r *Relay) refuseLetters(ctx context.Context) error {
	if r.cfg.DeadLetters != DeadLettersOff {
		return nil
	}
	store, err := dlq.Open(r.cfg.Session, r.cfg.Keyspace, dlq.WithLogger(r.log))
	if err != nil {
		return err
	}
	open := OpenLettersError{Table: r.cfg.TableKeyspace + "." + r.cfg.Table}
	err = r.untilRead(ctx, "cannot read whether dead letters are open; nothing is published before that", func() error {
		open.Letters, open.Released = 0, 0
		return store.Chains(ctx, open.Table, func(e dlq.ChainEntry) error {
			open.Letters++
			if e.Released {
				open.Released++
			}
			return nil
		})
	})
	switch {
	case cqlcode.Of(err) == gocql.ErrCodeInvalid:
		return nil // a schema without dead letters has none
	case err != nil:
		return err
	case open.Letters > open.Released:
		return &open
	case open.Released > 0:
		r.log.Warn("dead letters are off, and released ones are open: nobody publishes them", "letters", open.Released)
	}
	return nil
}
