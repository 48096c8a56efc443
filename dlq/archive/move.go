package archive

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"
	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// ofArchive marks an error of the archive itself.
func ofArchive(err error) error { return fmt.Errorf("%w: %w", dlq.ErrArchive, err) }

// isLeft reports whether an error concerns one dead letter, which is not changed.
func isLeft(err error) bool { return errors.Is(err, dlq.ErrRefused) || errors.Is(err, dlq.ErrNotFound) }

// Purge writes dead letters to the archive, in objects as large as a sweep's, and then
// purges each one that has not changed since it was read. If it ends early, the next
// call writes the copies again of the ones that are not purged.
func (s *Sweeper) Purge(ctx context.Context, events []gocql.UUID, force bool, by dlq.Actor) ([]error, error) {
	out := make([]error, len(events))
	at := make(map[gocql.UUID]int, len(events))
	m := mover{
		s: s, writer: by.Name, how: dlq.Purge{Force: force}, limit: rate.NewLimiter(rate.Inf, 0),
		by:    func(*dlq.DeadLetter) dlq.Actor { return by },
		held:  func(context.Context, *dlq.DeadLetter) (bool, error) { return false, nil },
		moved: func(l *dlq.DeadLetter, err error) { out[at[l.EventID]] = err },
	}
	for i, id := range events {
		at[id] = i
		c, err := s.conf.Store.Copy(ctx, id)
		if err == nil {
			err = m.take(ctx, &c)
		}
		switch {
		case isLeft(err):
			out[i] = err
		case err != nil:
			return out, err
		}
	}
	return out, m.flush(ctx)
}

// take adds a copy if its dead letter may be purged.
func (m *mover) take(ctx context.Context, c *dlq.Copy) error {
	if !c.DeadLetter.PurgedAt.IsZero() {
		// It was purged before, by any process; after a crash this removes the rest.
		// The archive has no copy of one that was restored since.
		return m.purge(ctx, &c.DeadLetter)
	}
	if err := m.s.conf.Store.CheckPurge(&c.DeadLetter, m.how); err != nil {
		return err
	}
	return m.add(ctx, c)
}

// Restore restores dead letters. It reads each of their objects once, and verifies it
// as a whole before it restores one of them.
func (s *Sweeper) Restore(ctx context.Context, events []gocql.UUID, by dlq.Actor) ([]error, error) {
	out := make([]error, len(events))
	outlines, err := s.conf.Store.ReadMany(ctx, events)
	if err != nil {
		return out, err
	}
	in := make(map[string]map[string]int) // by object, of which events which
	for i, id := range events {
		l, ok := outlines[id]
		switch {
		case !ok:
			out[i] = fmt.Errorf("event %s: %w", id, dlq.ErrNotFound)
		case l.PurgedAt.IsZero(): // whole, or restored already
			if err := s.conf.Store.Restore(ctx, id, nil, by); isLeft(err) {
				out[i] = err
			} else if err != nil {
				return out, err
			}
		case l.Archive == "":
			out[i] = fmt.Errorf("event %s was purged and is in no archive: %w", id, dlq.ErrNoCopy)
		default:
			if in[l.Archive] == nil {
				in[l.Archive] = make(map[string]int)
			}
			in[l.Archive][id.String()] = i
		}
	}
	for object, wanted := range in {
		if err := s.restoreFrom(ctx, object, wanted, events, out, by); err != nil {
			return out, err
		}
	}
	return out, nil
}

// restoreFrom restores the wanted dead letters of an object.
func (s *Sweeper) restoreFrom(ctx context.Context, object string, wanted map[string]int, events []gocql.UUID, out []error, by dlq.Actor) error {
	found := make(map[int]Record, len(wanted))
	err := s.conf.Archive.Records(ctx, object, func(r Record) error {
		if i, ok := wanted[r.EventID]; ok {
			found[i] = r
		}
		return nil
	})
	missing := fmt.Errorf("it is not in %s", object)
	switch {
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrDamaged):
		clear(found) // all of it, or nothing
		missing = err
	case err != nil:
		return ofArchive(err)
	}
	for id, i := range wanted {
		r, ok := found[i]
		if !ok {
			out[i] = fmt.Errorf("event %s: %w: %w", id, dlq.ErrNoCopy, missing)
			continue
		}
		c, err := r.Copy()
		if err != nil {
			out[i] = fmt.Errorf("event %s: %w: %w", id, dlq.ErrNoCopy, err)
			continue
		}
		if err := s.conf.Archive.renew(ctx, &c.DeadLetter); err != nil {
			return ofArchive(err)
		}
		if err := s.conf.Store.Restore(ctx, events[i], &c, by); isLeft(err) {
			out[i] = err
		} else if err != nil {
			return err
		}
	}
	return nil
}

// Archive is the archive.
func (s *Sweeper) Archive() *Archive { return s.conf.Archive }

// Expires returns the time at which an object is removed; zero for never.
func (s *Sweeper) Expires(m *Manifest) time.Time {
	if s.conf.Keep < 0 {
		return time.Time{}
	}
	return m.CreatedAt.Add(s.conf.Keep)
}
