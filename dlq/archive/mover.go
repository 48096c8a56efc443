package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/time/rate"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// mover moves dead letters to the archive: it collects copies for an object, writes it, and then
// removes from the database each one that has not changed since it was read.
type mover struct {
	s      *Sweeper
	writer string // of objects
	how    dlq.Purge
	by     func(*dlq.DeadLetter) dlq.Actor
	limit  *rate.Limiter // of purges
	// held reports that a dead letter remains: it is asked once more after the object was written.
	held func(context.Context, *dlq.DeadLetter) (bool, error)
	// moved receives each dead letter that was purged from the database, or the reason for which it was not.
	moved func(l *dlq.DeadLetter, err error)

	records     []Record
	deadLetters []dlq.DeadLetter // without payloads
	bytes       int
	objects     []string // that were written
}

// add adds a copy, and moves all of them if there are enough for an object.
func (m *mover) add(ctx context.Context, c *dlq.Copy) error {
	l := c.DeadLetter
	if m.s.conf.Archive == nil {
		return m.purge(ctx, &l)
	}
	if err := m.s.conf.Archive.renew(ctx, &l); err != nil {
		return ofArchive(err)
	}
	m.records = append(m.records, newRecord(c))
	m.bytes += len(l.Payload) + 1024
	l.Payload, l.Headers, l.Metadata, l.Raw = nil, nil, nil, nil
	m.deadLetters = append(m.deadLetters, l)
	if len(m.records) >= objectDeadLetters || m.bytes >= objectBytes {
		return m.flush(ctx)
	}
	return nil
}

// flush writes the object, and then removes its dead letters except for their outlines.
func (m *mover) flush(ctx context.Context) error {
	if len(m.records) == 0 {
		return nil
	}
	man, err := m.s.conf.Archive.Write(ctx, m.records, m.writer)
	if err != nil {
		return ofArchive(err)
	}
	m.how.Archive, m.objects = man.Object, append(m.objects, man.Object)
	for i := range m.deadLetters {
		if err := m.limit.Wait(ctx); err != nil {
			return err
		}
		// An event may have been blocked behind it while the object was written.
		l := &m.deadLetters[i]
		if held, err := m.held(ctx, l); err != nil {
			return err
		} else if held {
			continue
		}
		if err := m.purge(ctx, l); err != nil {
			return err
		}
	}
	m.records, m.deadLetters, m.bytes = nil, nil, 0
	return nil
}

// purge removes a dead letter except for its outline.
func (m *mover) purge(ctx context.Context, l *dlq.DeadLetter) error {
	by := m.by(l)
	by.Version = l.Version
	err := m.s.conf.Store.Purge(ctx, l.EventID, m.how, by)
	if err != nil && !isLeft(err) {
		return err
	}
	m.moved(l, err)
	return nil
}

// move moves the dead letters of a pass.
func (s *Sweeper) move(ctx context.Context, p *pass, r *dlq.Swept) error {
	m := mover{
		s: s, writer: s.conf.Owner, how: dlq.Purge{Force: true}, limit: s.limit,
		by: func(l *dlq.DeadLetter) dlq.Actor {
			return dlq.Actor{Name: "retention", Reason: fmt.Sprintf("%s for longer than its retention", l.Status)}
		},
		held: func(ctx context.Context, l *dlq.DeadLetter) (bool, error) {
			held, err := s.holdsOthers(ctx, l)
			if held {
				r.Held++
				s.metrics.of("held").Inc()
			}
			return held, err
		},
		moved: func(l *dlq.DeadLetter, err error) {
			if err != nil {
				r.Changed++
				s.metrics.of("changed").Inc()
				return
			}
			r.Archived[l.Status]++
			result := "archived"
			if s.conf.Archive == nil {
				result = "deleted"
			}
			s.metrics.of(result).Inc()
		},
	}
	err := s.walk(ctx, p.filter(), func(seen *dlq.DeadLetter) error {
		if !p.meant(seen) { // its first failure alone is old
			return nil
		}
		c, err := s.copy(ctx, seen)
		if errors.Is(err, dlq.ErrNotFound) {
			return nil
		}
		if err != nil || !p.meant(&c.DeadLetter) || restoredSince(c.History, p) {
			return err
		}
		if held, err := m.held(ctx, &c.DeadLetter); err != nil || held {
			return err
		}
		return m.add(ctx, &c)
	})
	if err == nil {
		err = m.flush(ctx)
	}
	r.Objects = append(r.Objects, m.objects...)
	return err
}

// copy reads the complete dead letter; without an archive its history alone.
func (s *Sweeper) copy(ctx context.Context, seen *dlq.DeadLetter) (c dlq.Copy, err error) {
	if s.conf.Archive != nil {
		return s.conf.Store.Copy(ctx, seen.EventID)
	}
	c.DeadLetter = *seen
	c.History, err = s.conf.Store.History(ctx, seen.EventID)
	return c, err
}

// restoredSince reports whether the dead letter was restored after the time before which
// the pass takes dead letters: its retention begins again.
func restoredSince(history []dlq.Change, p *pass) bool {
	return slices.ContainsFunc(history, func(c dlq.Change) bool { return c.Action == dlq.ActionRestore && !c.At.Before(p.before) })
}

// holdsOthers reports whether the failed dead letter l blocks a later one of its aggregate.
func (s *Sweeper) holdsOthers(ctx context.Context, l *dlq.DeadLetter) (bool, error) {
	if l.Status != dlq.Failed || l.Unblocked {
		return false, nil
	}
	chain, err := s.conf.Store.Chain(ctx, l.Table, l.AggregateID)
	if err != nil {
		return false, err
	}
	behind := false
	for _, e := range chain {
		switch {
		case e.EventID == l.EventID:
			behind = true
		case behind && e.Status == dlq.Blocked:
			return true, nil
		}
	}
	return false, nil
}
