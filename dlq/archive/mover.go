package archive

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// mover collects dead letters for an object.
type mover struct {
	s           *Sweeper
	r           *Report
	records     []Record
	deadLetters []dlq.DeadLetter // without payloads
	bytes       int
}

// add reads the dead letter again and adds it if its retention has ended.
func (m *mover) add(ctx context.Context, seen *dlq.DeadLetter, p *pass) error {
	if !p.meant(seen) { // its first failure alone is old
		return nil
	}
	c, err := m.copy(ctx, seen)
	if errors.Is(err, dlq.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	l := c.DeadLetter
	if !p.meant(&l) || restoredSince(c.History, p) {
		return nil
	}
	held, err := m.held(ctx, &l)
	if err != nil || held {
		return err
	}
	if m.s.conf.Archive == nil {
		return m.purge(ctx, &l, "")
	}
	if err := m.s.conf.Archive.renew(ctx, &l); err != nil {
		return ofArchive(err)
	}
	m.records = append(m.records, newRecord(&c))
	m.bytes += len(l.Payload) + 1024
	l.Payload, l.Headers, l.Metadata, l.Raw = nil, nil, nil, nil
	m.deadLetters = append(m.deadLetters, l)
	if len(m.records) >= objectDeadLetters || m.bytes >= objectBytes {
		return m.flush(ctx)
	}
	return nil
}

// copy reads the complete dead letter; without an archive its history alone.
func (m *mover) copy(ctx context.Context, seen *dlq.DeadLetter) (c dlq.Copy, err error) {
	if m.s.conf.Archive != nil {
		return m.s.conf.Store.Copy(ctx, seen.EventID)
	}
	c.DeadLetter = *seen
	c.History, err = m.s.conf.Store.History(ctx, seen.EventID)
	return c, err
}

// restoredSince reports whether the dead letter was restored after the time before which
// the pass takes dead letters: its retention begins again.
func restoredSince(history []dlq.Change, p *pass) bool {
	return slices.ContainsFunc(history, func(c dlq.Change) bool { return c.Action == dlq.ActionRestore && !c.At.Before(p.before) })
}

// held reports whether the dead letter remains because it blocks others, and counts it.
func (m *mover) held(ctx context.Context, l *dlq.DeadLetter) (bool, error) {
	held, err := m.s.holdsOthers(ctx, l)
	if held {
		m.r.Held++
		m.s.metrics.of("held").Inc()
	}
	return held, err
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

// flush writes the object, and then removes its dead letters except for their outlines.
func (m *mover) flush(ctx context.Context) error {
	if len(m.records) == 0 {
		return nil
	}
	man, err := m.s.conf.Archive.Write(ctx, m.records, m.s.conf.Owner)
	if err != nil {
		return ofArchive(err)
	}
	m.r.Objects = append(m.r.Objects, man.Object)
	for i := range m.deadLetters {
		if err := m.s.limit.Wait(ctx); err != nil {
			return err
		}
		// An event may have been blocked behind it while the object was written.
		l := &m.deadLetters[i]
		if held, err := m.held(ctx, l); err != nil {
			return err
		} else if held {
			continue
		}
		if err := m.purge(ctx, l, man.Object); err != nil {
			return err
		}
	}
	m.records, m.deadLetters, m.bytes = nil, nil, 0
	return nil
}

// purge removes a dead letter except for its outline, unless it has changed since it was
// read. object has its copy; empty for none.
func (m *mover) purge(ctx context.Context, l *dlq.DeadLetter, object string) error {
	result := "archived"
	if object == "" {
		result = "deleted"
	}
	err := m.s.conf.Store.Purge(ctx, l.EventID, dlq.Purge{Archive: object, Force: true}, dlq.Actor{
		Name: "retention", Reason: fmt.Sprintf("%s for longer than its retention", l.Status), Version: l.Version,
	})
	switch {
	case errors.Is(err, dlq.ErrRefused), errors.Is(err, dlq.ErrNotFound):
		m.r.Changed++
		m.s.metrics.of("changed").Inc()
	case err != nil:
		return err
	default:
		m.r.Archived[l.Status]++
		m.s.metrics.of(result).Inc()
	}
	return nil
}
