package cdclog

import (
	"context"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// StoredEvent is a row of the outbox table with its write time in microseconds.
type StoredEvent struct {
	outbox.Event
	Written int64
	// Err says that the row cannot be published, and why; Event is what is known of it.
	Err error
}

// Lookup reads the events of of's aggregate with from <= seq < to by key, in order,
// and calls each for every one. An aggregate may have a million, so nobody keeps
// more of them than a page. An error of each ends it, and is what it returns.
type Lookup func(ctx context.Context, of *outbox.Event, from, to int64, each func(StoredEvent) error) error

// One reads event seq; false says that there is none.
func (find Lookup) One(ctx context.Context, of *outbox.Event, seq int64) (found StoredEvent, ok bool, err error) {
	err = find(ctx, of, seq, seq+1, func(e StoredEvent) error {
		found, ok = e, true
		return nil
	})
	return found, ok, err
}

// AtMost is find with a bound on the lookups that run concurrently.
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

// lookupPage is how many rows one answer to a look-up holds at most.
const lookupPage = 500

// CQLLookup looks up events in the outbox table.
func CQLLookup(session *gocql.Session, table outbox.Table) Lookup {
	return func(ctx context.Context, of *outbox.Event, from, to int64, each func(StoredEvent) error) error {
		stmt, args := table.SelectByKey(of, from, to)
		iter := session.Query(stmt, args...).WithContext(ctx).Consistency(gocql.LocalQuorum).PageSize(lookupPage).Iter()
		sc := table.Scanner()
		var written int64
		for iter.Scan(append([]any{&written}, sc.Dest()...)...) {
			e, err := sc.Event()
			if err := each(BadRow(&table, StoredEvent{e, written, err}, 0)); err != nil {
				_ = iter.Close() // the caller stops; what the query says is of no interest
				return err
			}
		}
		return iter.Close()
	}
}
