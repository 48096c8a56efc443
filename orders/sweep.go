package orders

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

const selectVersion = "SELECT version FROM orders WHERE id = ?"

// Sweep rolls orders forward whose last event is not in their rows, before the event expires:
// see outbox.Appender.Sweep. It ends with ctx.
func (s *Service) Sweep(ctx context.Context) {
	for {
		swept, err := s.appender.Sweep(ctx, outbox.Rows{AggregateType: AggregateType, Version: s.store.version, Apply: s.applyEvent})
		if ctx.Err() != nil {
			return
		}
		if swept.Late {
			s.log.ErrorContext(ctx, "orders were not swept for longer than the outbox keeps events: changes may be lost", "row_ttl", s.cfg.RowTTL)
		}
		if err != nil {
			s.log.WarnContext(ctx, "failed to sweep orders; retrying", "at", swept.Next, "err", err)
		}
		if !swept.Complete.IsZero() {
			s.metrics.swept.Store(swept.Complete.UnixMilli())
		}
		wait := time.Until(swept.Next)
		if swept.Next.IsZero() { // the progress could not be read
			wait = time.Minute
		}
		if retry.Wait(ctx, wait) != nil {
			return
		}
	}
}

// applyEvent writes the rows of an order after an event that they lack.
func (s *Service) applyEvent(ctx context.Context, e outbox.Event) error {
	o, err := fromEvent(&e)
	if err != nil {
		return err
	}
	if err := s.store.apply(ctx, &o); err != nil {
		return err
	}
	s.rolledForward(ctx, &o)
	return nil
}

// version reads the version of an order's row, 0 if it does not exist.
func (s *store) version(ctx context.Context, last outbox.Event) (version int64, err error) {
	ctx, done, err := s.guard.Call(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { done(err) }()
	err = s.query(ctx, selectVersion, last.AggregateID).Idempotent(true).RetryPolicy(otherNode{}).Scan(&version)
	if errors.Is(err, gocql.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read the version of order %s: %w", last.AggregateID, err)
	}
	return version, nil
}
