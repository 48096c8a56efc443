package archive

import (
	"context"
	"errors"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// expire removes the objects and the outlines whose retention has ended.
func (s *Sweeper) expire(ctx context.Context, now time.Time, r *dlq.Swept) (err error) {
	if s.conf.Archive != nil {
		if r.Orphans, err = s.conf.Archive.RemoveOrphans(ctx); err != nil {
			return ofArchive(err)
		}
	}
	if s.conf.Keep < 0 {
		return nil
	}
	before := now.Add(-s.conf.Keep)
	old, err := s.listExpired(ctx, before)
	if err != nil {
		return err
	}
	for _, object := range old {
		if err := s.conf.Archive.Remove(ctx, object); err != nil {
			return ofArchive(err)
		}
		r.Expired = append(r.Expired, object)
		s.metrics.expired.Inc()
	}
	if err := s.expirePayloads(ctx, now, r); err != nil {
		return err
	}
	ttl := make(map[string]time.Duration)
	return s.walk(ctx, dlq.Filter{Status: []dlq.Status{dlq.Archived}, Until: before}, func(l *dlq.DeadLetter) error {
		if l.PurgedAt.IsZero() || !l.PurgedAt.Before(before) {
			return nil
		}
		gone, err := s.rowsGone(ctx, ttl, l.Table, now.Sub(l.PurgedAt))
		if err != nil || !gone {
			return err
		}
		switch err := s.conf.Store.Forget(ctx, l.EventID); {
		case errors.Is(err, dlq.ErrNotFound), errors.Is(err, dlq.ErrRefused):
		case err != nil:
			return err
		default:
			r.Forgotten++
			s.metrics.of("forgotten").Inc()
		}
		return nil
	})
}

// listExpired are the objects that were written before a time.
func (s *Sweeper) listExpired(ctx context.Context, before time.Time) (old []string, err error) {
	if s.conf.Archive == nil {
		return nil, nil
	}
	if err := s.conf.Archive.List(ctx, time.Time{}, func(m Manifest) error {
		if !m.CreatedAt.Before(before) {
			return dlq.ErrStop // objects are in the order of days, and of times within a day
		}
		old = append(old, m.Object)
		return nil
	}); err != nil {
		return nil, ofArchive(err)
	}
	return old, nil
}
