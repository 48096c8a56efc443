package orders

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
)

// Bounds of a page of Events. Each event is read with the whole order that it
// carries, so a page is short.
const (
	DefaultEventsPage = 20
	MaxEventsPage     = 50
)

// EventSummary is one event of an order, without the order that it carries.
type EventSummary struct {
	ID      gocql.UUID `json:"event_id" format:"uuid"`
	Version int64      `json:"version" doc:"The order's version that it made"`
	Type    string     `json:"type" enum:"OrderCreated,OrderUpdated,OrderCancelled"`
	Status  Status     `json:"status" enum:"placed,confirmed,shipped,cancelled" doc:"The order's status after it"`
	At      time.Time  `json:"at" doc:"When the change was made"`
}

var selectEvents = "SELECT " + rows.Columns(outbox.DefaultTable) + " FROM " + outbox.DefaultTableName + " WHERE aggregate_id = ? AND seq < ? ORDER BY seq DESC LIMIT ?"

// Events returns the events of an order, newest first: at most limit events
// before a version, or of all if before is zero. The outbox rows expire (after
// 7 days by default), so the oldest events may be missing.
//
// Limit zero means DefaultEventsPage. Errors are ErrNotFound, *OverloadedError
// or *UnavailableError.
func (s *Service) Events(ctx context.Context, id gocql.UUID, before int64, limit int) ([]EventSummary, error) {
	_, leave, err := s.guard.Enter(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer leave()
	events, err := s.store.eventsBefore(ctx, id, cmp.Or(before, math.MaxInt64), min(cmp.Or(limit, DefaultEventsPage), MaxEventsPage))
	if err != nil {
		return nil, s.unavailable(ctx, id, false, err)
	}
	if len(events) == 0 {
		// All events have expired, or the order does not exist.
		_, err = s.get(ctx, id)
	}
	return events, err
}

func (s *store) eventsBefore(ctx context.Context, id gocql.UUID, before int64, limit int) (_ []EventSummary, err error) {
	ctx, done, err := s.guard.Call(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { done(err) }()
	out := []EventSummary{}
	sc := rows.NewScanner(outbox.DefaultTable)
	iter := s.query(ctx, selectEvents, id.String(), before, limit).Idempotent(true).RetryPolicy(otherNode{}).Iter()
	for iter.Scan(sc.Dest()...) {
		e, err := sc.Event()
		if err == nil {
			var carried struct{ Status Status }
			err = json.Unmarshal(e.Payload, &carried)
			out = append(out, EventSummary{ID: e.ID.UUID(), Version: e.Sequence, Type: e.Type, Status: carried.Status, At: e.CreatedAt.UTC()})
		}
		if err != nil {
			return nil, fmt.Errorf("read the events of order %s: %w", id, err)
		}
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read the events of order %s: %w", id, err)
	}
	return out, nil
}
