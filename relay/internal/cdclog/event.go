package cdclog

import (
	"context"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
)

// StoredEvent is a row of the outbox table with its write time in microseconds.
type StoredEvent struct {
	outbox.Event
	Written int64
	// Err is the reason why the row cannot be published; Event then contains the readable
	// columns.
	Err error
}

// ScanEvent returns the row that sc has scanned.
func ScanEvent(table *outbox.Table, sc rows.Scanner, written int64) StoredEvent {
	e, err := sc.Event()
	if err == nil {
		err = rows.CheckDelay(*table, &e, time.UnixMicro(written))
	}
	return StoredEvent{e, written, err}
}

// Empty reports whether the row has no column of an event but the aggregate's id.
func (e *StoredEvent) Empty() bool {
	return e.Err != nil && e.Written == 0 && e.ID.IsZero() && e.Sequence == 0 && e.Type == "" && e.AggregateType == "" &&
		len(e.Payload) == 0 && len(e.Headers) == 0 && e.CreatedAt.IsZero() && e.DeliverAt.IsZero()
}

// rewrittenAfter is how long after its creation an event is stored for the first time at
// most, if its service stores it immediately.
const rewrittenAfter = time.Minute

// FirstWrite returns when the row was written first at the earliest, in microseconds, if its
// service stored the event when it was created: a row that is written again loses the time
// of its first write.
func (e *StoredEvent) FirstWrite() int64 {
	if e.CreatedAt.IsZero() {
		return e.Written
	}
	return min(e.Written, Due(&e.Event))
}

// Rewritten reports whether the row may have been written again (Rewritten).
func (e *StoredEvent) Rewritten() bool { return Rewritten(&e.Event, e.Written) }

// Rewritten reports whether the row of an event may have been written again: it was written
// long after its event was created, and after the event was due.
func Rewritten(e *outbox.Event, written int64) bool {
	return !e.CreatedAt.IsZero() && written-Due(e) > rewrittenAfter.Microseconds()
}

// Due returns the earliest time at which an event can have been published, in microseconds,
// if its service stored it when it was created.
func Due(e *outbox.Event) int64 {
	due := e.CreatedAt
	if e.DeliverAt.After(due) {
		due = e.DeliverAt
	}
	return due.UnixMicro()
}

// Lookup reads the events of of's aggregate with from <= seq < to by key, in order, and
// calls each for every one. An aggregate may have a million events, so callers keep at
// most a page of them. Lookup stops at the first error of each and returns it.
type Lookup func(ctx context.Context, of *outbox.Event, from, to int64, each func(StoredEvent) error) error

// One returns event seq; ok is false if there is none.
func (find Lookup) One(ctx context.Context, of *outbox.Event, seq int64) (found StoredEvent, ok bool, err error) {
	err = find(ctx, of, seq, seq+1, func(e StoredEvent) error {
		found, ok = e, true
		return nil
	})
	return found, ok, err
}

// AtMost returns find with at most n concurrent lookups.
func (find Lookup) AtMost(n int) Lookup {
	tokens := make(chan struct{}, n)
	return func(ctx context.Context, of *outbox.Event, from, to int64, each func(StoredEvent) error) error {
		select {
		case tokens <- struct{}{}:
			defer func() { <-tokens }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		return find(ctx, of, from, to, each)
	}
}

// lookupPage is the page size of a lookup, in rows.
const lookupPage = 500

// CQLLookup returns a lookup of events in the outbox table.
func CQLLookup(session *gocql.Session, table outbox.Table) Lookup {
	return func(ctx context.Context, of *outbox.Event, from, to int64, each func(StoredEvent) error) error {
		stmt, args := rows.SelectByKey(table, of, from, to)
		iter := session.Query(stmt, args...).WithContext(ctx).Consistency(gocql.LocalQuorum).PageSize(lookupPage).Iter()
		sc := rows.NewScanner(table)
		var written int64
		for iter.Scan(append([]any{&written}, sc.Dest()...)...) {
			if err := each(BadRow(&table, ScanEvent(&table, sc, written), 0)); err != nil {
				_ = iter.Close() // the caller stops; the result of the query does not matter
				return err
			}
		}
		return iter.Close()
	}
}
