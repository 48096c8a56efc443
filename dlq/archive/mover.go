package archive

import (
	"context"
	"errors"
	"fmt"

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

// add reads the complete dead letter and adds it if it still meets the condition.
func (m *mover) add(ctx context.Context, seen *dlq.DeadLetter, meant func(*dlq.DeadLetter) bool) error {
	store := m.s.conf.Store
	c, err := store.Copy(ctx, seen.EventID)
	if errors.Is(err, dlq.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	l := c.DeadLetter
	if !meant(&l) {
		return nil
	}
	held, err := m.s.holdsOthers(ctx, &l)
	if err != nil {
		return err
	}
	if held {
		m.r.Held++
		m.s.metrics.of("held").Inc()
		return nil
	}
	m.records = append(m.records, recordOf(&c))
	m.bytes += len(l.Payload) + 1024
	l.Payload, l.Headers, l.Metadata, l.Raw = nil, nil, nil, nil
	m.deadLetters = append(m.deadLetters, l)
	if len(m.records) >= objectLetters || m.bytes >= objectBytes {
		return m.flush(ctx)
	}
	return nil
}

// holdsOthers reports whether the failed dead letter l blocks a parked one of its
// aggregate.
func (s *Sweeper) holdsOthers(ctx context.Context, l *dlq.DeadLetter) (bool, error) {
	if l.Status != dlq.Failed || l.Released {
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
		case behind && e.Status == dlq.Parked:
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
		l := &m.deadLetters[i]
		err := m.s.conf.Store.Purge(ctx, l.EventID, dlq.Purge{Archive: man.Object, Force: true}, dlq.Actor{
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
			m.s.metrics.of("archived").Inc()
		}
	}
	m.records, m.deadLetters, m.bytes = nil, nil, 0
	return nil
}
