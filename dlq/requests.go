package dlq

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gocql/gocql"
)

// Request tells the relay that an operator changed a letter.
type Request struct {
	// Table is the outbox table, "keyspace.table".
	Table string
	// ID orders requests by time; it is the request's key.
	ID          gocql.UUID
	EventID     gocql.UUID
	AggregateID string
	// Action is what the operator did.
	Action Action
	// Actor is who.
	Actor string
	// Entry is the letter as it stands now, after the change; its Status may be
	// Resolved.
	Entry ChainEntry

	version int64
}

const (
	// requestGrace is how long the change that a request announces may take.
	requestGrace = time.Minute
	// requestOverlap is how far the clocks of operators may differ.
	requestOverlap = 10 * time.Minute
	// requestSweep is how often all requests are read, also older ones.
	requestSweep = 5 * time.Minute
)

// requestMarks remember, per table, where the done requests end, so that polls
// do not read their tombstones again.
type requestMarks struct {
	mu sync.Mutex
	by map[string]*requestMark
}

type requestMark struct{ done, swept time.Time }

func (m *requestMarks) from(table string, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.by == nil {
		m.by = make(map[string]*requestMark)
	}
	mark := m.by[table]
	if mark == nil {
		mark = &requestMark{done: time.Unix(0, 0)}
		m.by[table] = mark
	}
	if now.Sub(mark.swept) >= requestSweep || mark.done.Before(time.Unix(0, 0).Add(requestOverlap)) {
		mark.swept = now
		return time.Unix(0, 0)
	}
	return mark.done.Add(-requestOverlap)
}

func (m *requestMarks) finished(table string, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if mark := m.by[table]; mark != nil && at.After(mark.done) {
		mark.done = at
	}
}

// Requests are the changes of operators to letters of an outbox table that
// nobody has called Done for, oldest first. Each is returned again until then.
//
// It is cheap enough to be asked every second. A request announces its change
// before that is made; Requests returns it once it is made, and drops it a
// minute later if it never was.
func (s *Store) Requests(ctx context.Context, table string) ([]Request, error) {
	now := s.now()
	from := gocql.MinTimeUUID(s.marks.from(table, now))
	qctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var found []Request
	iter := s.selects(qctx, s.stmt.requests, table, from).Prefetch(0).Iter()
	r := Request{Table: table}
	for iter.Scan(&r.ID, &r.EventID, &r.AggregateID, (*string)(&r.Action), &r.version, &r.Actor) {
		found = append(found, r)
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read what operators ask of %s: %w", table, err)
	}
	out := found[:0]
	for _, r := range found {
		l, err := s.read(ctx, r.EventID, s.stmt.entry, (*Letter).entryDest, s.cons)
		switch {
		case err != nil && !errors.Is(err, ErrNotFound):
			return nil, err
		case err == nil && l.Version >= r.version:
			r.Entry = l.entry()
			out = append(out, r)
		case now.Sub(r.ID.Time()) > requestGrace:
			if err := s.Done(ctx, r); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// Done removes a request that the relay has acted on, or that needs nothing.
func (s *Store) Done(ctx context.Context, r Request) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	if err := s.query(ctx, s.stmt.requestDrop, r.Table, r.ID).Idempotent(true).Exec(); err != nil {
		return fmt.Errorf("finish the request of %s on event %s: %w", r.Actor, r.EventID, err)
	}
	s.marks.finished(r.Table, r.ID.Time())
	return nil
}

// ask announces a change that will make version of l.
func (s *Store) ask(ctx context.Context, l *Letter, action Action, actor string) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err := s.query(ctx, s.stmt.requestAdd, l.Table, gocql.UUIDFromTime(s.now()), l.EventID, l.AggregateID, string(action), l.Version+1, actor).
		Idempotent(true).Exec()
	if err != nil {
		return fmt.Errorf("tell the relay of event %s: %w", l.EventID, err)
	}
	return nil
}
