package dlq

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq/internal/db"
)

// Requests returns up to 1000 changes that operators made to dead letters of an outbox
// table, oldest first. It returns each of them until Done removes it. mine selects requests,
// nil all; the others, which remain for other readers, do not count.
//
// It is cheap enough for a call every second. A request is written before its change;
// Requests returns it after the change is made, and removes it after eleven minutes if
// the change was not made. The margin covers differences between clocks; a change that is
// made a minute later or more, because its process slept, writes its request again.
func (s *Store) Requests(ctx context.Context, table string, mine func(*Request) bool) ([]Request, error) {
	now := s.db.Clock.Now()
	found, err := s.readRequests(ctx, table, s.marks.from(table, now), mine)
	if err != nil {
		return nil, err
	}
	ids := make([]gocql.UUID, 0, len(found))
	for _, r := range found {
		if !slices.Contains(ids, r.EventID) {
			ids = append(ids, r.EventID)
		}
	}
	deadLetters, err := s.ReadMany(ctx, ids)
	if err != nil {
		return nil, err
	}
	var out, never []Request
	for _, r := range found {
		l, ok := deadLetters[r.EventID]
		switch {
		case ok && l.Version >= r.version:
			r.Entry = l.Entry()
			out = append(out, r)
		case now.Sub(r.ID.Time()) > requestGrace:
			never = append(never, r)
		}
	}
	if err := s.Done(ctx, never...); err != nil {
		return nil, err
	}
	return out, nil
}

// readRequests reads the requests from a time on that are mine, up to maxRequests.
func (s *Store) readRequests(ctx context.Context, table string, from time.Time, mine func(*Request) bool) (found []Request, err error) {
	var passed time.Time
	var page []byte
	for {
		var all []Request
		if all, page, err = s.requestPage(ctx, table, from, page); err != nil {
			return nil, fmt.Errorf("read the requests of %s: %w", table, err)
		}
		for _, r := range all {
			if mine == nil || mine(&r) {
				found = append(found, r)
			} else if len(found) == 0 {
				passed = r.ID.Time()
			}
		}
		if len(page) == 0 || len(found) >= maxRequests {
			break
		}
	}
	// The requests of others before the first own one need not be read again.
	s.marks.markFinished(table, passed)
	return found[:min(len(found), maxRequests)], nil
}

// requestPage reads a page of requests, and the state of the next one. It has a time
// limit of its own, because there may be many pages of other relays.
func (s *Store) requestPage(ctx context.Context, table string, from time.Time, page []byte) (out []Request, next []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.db.Timeout)
	defer cancel()
	iter := s.db.Select(ctx, s.stmt.requests, table, gocql.MinTimeUUID(from)).PageSize(maxRequests).PageState(page).Iter()
	next = iter.PageState()
	for r := (Request{Table: table}); iter.Scan(&r.ID, &r.EventID, &r.AggregateID, (*string)(&r.Action), &r.version, &r.Actor); {
		out = append(out, r)
	}
	return out, next, iter.Close()
}

// RequestedTables returns the tables that have requests. It reads the keys of all of them:
// call it rarely.
func (s *Store) RequestedTables(ctx context.Context) ([]string, error) {
	out, err := db.Rows(ctx, s.db, db.Column[string], s.stmt.requested)
	if err != nil {
		return nil, fmt.Errorf("list the tables with requests: %w", err)
	}
	return out, nil
}

// Done removes requests that the relay has acted on, or that need nothing.
func (s *Store) Done(ctx context.Context, requests ...Request) error {
	for some := range slices.Chunk(requests, maxLookup) {
		if err := s.done(ctx, some); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) done(ctx context.Context, requests []Request) error {
	b := s.db.Batch()
	for _, r := range requests {
		b.Query(s.stmt.requestDrop, r.Table, r.ID)
	}
	if err := s.db.Execute(ctx, b); err != nil {
		return fmt.Errorf("finish %d requests, the first of %s on event %s: %w", len(requests), requests[0].Actor, requests[0].EventID, err)
	}
	for _, r := range requests {
		s.marks.markFinished(r.Table, r.ID.Time())
	}
	return nil
}

// request writes a request for the change that makes the next version of l. The database dates it:
// relays read the newest requests by its clock.
func (s *Store) request(ctx context.Context, l *DeadLetter, action Action, actor string) error {
	if err := s.db.Write(ctx, s.stmt.requestAdd, l.Table, l.EventID, l.AggregateID, string(action), l.Version+1, actor); err != nil {
		return fmt.Errorf("write a request for event %s: %w", l.EventID, err)
	}
	return nil
}

// Holds returns the holds of an outbox table, "keyspace.table", of the last three
// minutes, which is the time to live of the rows. The holds of a stopped relay remain
// for that long.
func (s *Store) Holds(ctx context.Context, table string) ([]Hold, error) {
	out, err := db.Rows(ctx, s.db, func(h *Hold) []any { return []any{&h.Rule, &h.FailureKey, &h.Reason, &h.Since, &h.Until} }, s.stmt.holds, table)
	if err != nil {
		return nil, fmt.Errorf("read the holds of %s: %w", table, err)
	}
	return out, nil
}

// SetHold writes or renews a hold.
func (s *Store) SetHold(ctx context.Context, table string, h Hold) error {
	if err := s.db.Write(ctx, s.stmt.holdAdd, table, h.Rule, h.FailureKey, h.Reason, db.NullTime(h.Since), db.NullTime(h.Until)); err != nil {
		return fmt.Errorf("write a hold of %s: %w", table, err)
	}
	return nil
}

// DropHold removes a hold that is over.
func (s *Store) DropHold(ctx context.Context, table string, h Hold) error {
	if err := s.db.Write(ctx, s.stmt.holdDrop, table, h.Rule, h.FailureKey); err != nil {
		return fmt.Errorf("remove a hold of %s: %w", table, err)
	}
	return nil
}
