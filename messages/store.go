package messages

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/internal/requestkeys"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
)

// store executes the CQL of the service: each method makes one attempt of one
// statement, which ends with its context. Callers classify errors by
// cqlcode.FateOf.
type store struct {
	session *gocql.Session
	events  outbox.Table
	cons    gocql.Consistency
}

var selectEvent = "SELECT writetime(event_type), " + rows.Columns(outbox.DefaultTable) + " FROM " + outbox.DefaultTableName + " WHERE aggregate_id = ? AND seq = 1"

// insert writes an event. micros is its write time; zero lets the server choose.
func (s *store) insert(ctx context.Context, e *outbox.Event, micros int64) error {
	b := s.session.Batch(gocql.LoggedBatch).WithContext(ctx).RetryPolicy(cqlcode.NeverAgain{})
	b.SetConsistency(s.cons)
	if micros > 0 {
		b.WithTimestamp(micros)
	} else {
		b.DefaultTimestamp(false)
	}
	if err := s.events.Append(b, *e); err != nil {
		return err
	}
	if err := b.Exec(); err != nil {
		return fmt.Errorf("store message %s: %w", e.ID, err)
	}
	return nil
}

// stored is a message's outbox row.
type stored struct {
	outbox.Event
	writtenAt time.Time
}

// event reads the outbox row of a message. It returns false if there is none.
func (s *store) event(ctx context.Context, id gocql.UUID) (stored, bool, error) {
	sc := rows.NewScanner(outbox.DefaultTable)
	var micros int64
	err := s.query(ctx, selectEvent, id.String()).Idempotent(true).RetryPolicy(cqlcode.OtherNode{}).Scan(append([]any{&micros}, sc.Dest()...)...)
	if errors.Is(err, gocql.ErrNotFound) {
		return stored{}, false, nil
	}
	if err == nil {
		var e outbox.Event
		if e, err = sc.Event(); err == nil {
			return stored{e, time.UnixMicro(micros).UTC()}, e.AggregateType == outbox.MessageAggregate, nil
		}
	}
	return stored{}, false, fmt.Errorf("read the event of message %s: %w", id, err)
}

// identity contains the id and times of a message. A retry with the same
// Idempotency-Key receives the identity of the first attempt.
type identity struct {
	id        gocql.UUID
	createdAt time.Time
	// retried: the key was there already, so the message may be stored.
	retried bool
	// headers contain the trace and the id of the first request.
	headers map[string]string
}

// claim inserts the key of a request if it is free; otherwise it returns the existing
// identity. same reports whether it was claimed for the same request.
func (s *store) claim(ctx context.Context, r requestkeys.Request, fresh identity) (id identity, same bool, err error) {
	query := func(stmt string, args ...any) *gocql.Query {
		return s.query(ctx, stmt, args...).SerialConsistency(gocql.Serial)
	}
	first, same, err := requestkeys.Claim(query, requestkeys.Table, r, requestkeys.Result{ID: fresh.id, CreatedAt: fresh.createdAt})
	id = fresh
	id.id, id.createdAt = first.ID, first.CreatedAt
	id.retried = id.id != fresh.id // otherwise it is our own insert, also with a lost response
	return id, same, err
}

func (s *store) query(ctx context.Context, stmt string, args ...any) *gocql.Query {
	return s.session.Query(stmt, args...).WithContext(ctx).Consistency(s.cons).RetryPolicy(cqlcode.NeverAgain{})
}
