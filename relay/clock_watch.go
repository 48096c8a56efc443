package relay

import (
	"context"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/dbclock"
	"github.com/scylla-outbox/scylla-outbox/internal/retry"
	"github.com/scylla-outbox/scylla-outbox/relay/failure"
)

// measureClock measures the database's clock, by which rows are dated. It retries while the
// database is unavailable.
func (r *Relay) measureClock(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		err := r.measure(ctx)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case failure.Classify(err) == failure.Fatal:
			return err
		}
		if err := retry.Wait(ctx, retry.Required(r.cfg.RetryMin, r.cfg.RetryMax, attempt)); err != nil {
			return err
		}
	}
}

// watchClock measures the database's clock until ctx ends: that of a host may be set.
func (r *Relay) watchClock(ctx context.Context) error {
	for retry.Wait(ctx, r.cfg.watchInterval()) == nil {
		_ = r.measure(ctx) // the readers report database failures
	}
	return context.Cause(ctx)
}

// measure measures the database's clock once and logs if it begins or ends to differ from that
// of this host.
func (r *Relay) measure(ctx context.Context) error {
	if err := r.cfg.clock.Measure(ctx, r.cfg.Session); err != nil {
		return err
	}
	ahead := r.cfg.clock.Ahead()
	skewed := ahead.Abs() > dbclock.SkewTolerated
	r.mu.Lock()
	before := r.skewed
	r.skewed = skewed
	r.mu.Unlock()
	switch {
	case skewed && !before:
		r.log.Warn("the clock of this host differs from the database's, which the relay uses instead; synchronize them", "ahead", ahead)
	case !skewed && before:
		r.log.Info("the clock of this host agrees with the database's again")
	}
	return nil
}

// ClockAhead returns how far the clock of this host is ahead of the database's, and whether
// a relay on this host reports the difference.
func ClockAhead(ctx context.Context, session *gocql.Session) (ahead time.Duration, reported bool, err error) {
	var c dbclock.Clock
	err = c.Measure(ctx, session)
	return c.Ahead(), c.Ahead().Abs() > dbclock.SkewTolerated, err
}
