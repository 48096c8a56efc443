package orders

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/guard"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
)

// store executes the CQL of the service: each method makes one attempt of one
// statement or batch. The caller classifies errors by fateOf. The session's
// keyspace contains the tables.
type store struct {
	session *gocql.Session
	events  outbox.Table
	cons    gocql.Consistency
	serial  gocql.Consistency
	guard   *guard.Guard
}

const orderColumns = "id, version, status, invoice, customer_id, country, placed_at, currency, lines, total, " +
	"created_at, updated_at, cancelled_at, credit_note, cancel_reason, event_id, address, confirmed_at, shipped_at, carrier, tracking"

const (
	insertOrder = "INSERT INTO orders (" + orderColumns + ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) USING TIMESTAMP ?"
	selectOrder = "SELECT " + orderColumns + " FROM orders WHERE id = ?"
)

var (
	selectHead  = "SELECT " + rows.Columns(outbox.DefaultTable) + " FROM " + outbox.DefaultTableName + " WHERE aggregate_id = ? ORDER BY seq DESC LIMIT 1"
	selectEvent = "SELECT " + rows.Columns(outbox.DefaultTable) + " FROM " + outbox.DefaultTableName + " WHERE aggregate_id = ? AND seq = ?"
)

// create writes the order, its list entry and its event in one logged batch.
// eventTime is the write timestamp of the event in microseconds; zero lets the
// server choose. The rows of the order always have the write time of its
// version.
func (s *store) create(ctx context.Context, o *Order, e outbox.Event, eventTime int64) (err error) {
	ctx, done, err := s.guard.Call(ctx)
	if err != nil {
		return err
	}
	defer func() { done(err) }()
	b := s.session.Batch(gocql.LoggedBatch).WithContext(ctx).RetryPolicy(neverAgain{})
	b.SetConsistency(s.cons)
	if eventTime > 0 {
		b.WithTimestamp(eventTime)
	} else {
		b.DefaultTimestamp(false)
	}
	addOrder(b, o)
	if err := s.events.Append(b, e); err != nil {
		return err
	}
	if err := b.Exec(); err != nil {
		return fmt.Errorf("store order %s with event %s: %w", o.ID, e.ID, err)
	}
	return nil
}

// addOrder adds the rows of an order outside of the outbox to b.
func addOrder(b *gocql.Batch, o *Order) {
	b.Query(insertOrder, orderValues(o)...)
	if o.CustomerID != nil {
		b.Query(insertListed, listedValues(o)...)
		b.Query(insertMonth, *o.CustomerID, monthPartition(o.PlacedAt), o.writeTime())
	}
}

// apply writes the rows of an order alone, for a version whose event is in the
// outbox. It can be repeated.
func (s *store) apply(ctx context.Context, o *Order) (err error) {
	ctx, done, err := s.guard.Call(ctx)
	if err != nil {
		return err
	}
	defer func() { done(err) }()
	b := s.session.Batch(gocql.LoggedBatch).WithContext(ctx).RetryPolicy(neverAgain{})
	b.SetConsistency(s.cons)
	addOrder(b, o)
	if err := b.Exec(); err != nil {
		return fmt.Errorf("apply version %d to order %s: %w", o.Version, o.ID, err)
	}
	return nil
}

// order reads the row of an order, nil if it does not exist.
func (s *store) order(ctx context.Context, id gocql.UUID) (_ *Order, err error) {
	ctx, done, err := s.guard.Call(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { done(err) }()
	var o Order
	var cancelledAt, confirmedAt, shippedAt time.Time
	var address map[string]string
	err = s.query(ctx, selectOrder, id).Idempotent(true).RetryPolicy(otherNode{}).Scan(
		&o.ID, &o.Version, &o.Status, &o.Invoice, &o.CustomerID, &o.Country, &o.PlacedAt, &o.Currency, &o.Lines, &o.Total,
		&o.CreatedAt, &o.UpdatedAt, &cancelledAt, &o.CreditNote, &o.CancelReason, &o.EventID,
		&address, &confirmedAt, &shippedAt, &o.Carrier, &o.Tracking)
	if errors.Is(err, gocql.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read order %s: %w", id, err)
	}
	o.Address = parseAddress(address)
	for at, dst := range map[*time.Time]**time.Time{&cancelledAt: &o.CancelledAt, &confirmedAt: &o.ConfirmedAt, &shippedAt: &o.ShippedAt} {
		if !at.IsZero() {
			*dst = at
		}
	}
	return &o, nil
}

// lastEvent returns the last event that a statement reads at the consistency of plain reads, nil
// if it reads none.
func (s *store) lastEvent(ctx context.Context, stmt string, args ...any) (*outbox.Event, error) {
	ctx, done, err := s.guard.Call(ctx)
	if err != nil {
		return nil, err
	}
	var last *outbox.Event
	sc := rows.NewScanner(outbox.DefaultTable)
	iter := s.query(ctx, stmt, args...).Idempotent(true).RetryPolicy(otherNode{}).Iter()
	for err == nil && iter.Scan(sc.Dest()...) {
		var e outbox.Event
		e, err = sc.Event()
		last = &e
	}
	closeErr := iter.Close()
	done(closeErr) // a row that cannot be decoded is no failure of the database
	if err = cmp.Or(closeErr, err); err != nil {
		return nil, fmt.Errorf("read the events of order %s: %w", args[0], err)
	}
	return last, nil
}

// ready reads a row that does not exist, which uses the same replicas and
// tables as an existing one.
func (s *store) ready(ctx context.Context) error {
	var none gocql.UUID
	if _, err := s.order(ctx, none); err != nil {
		return err
	}
	_, err := s.lastEvent(ctx, selectHead, none.String())
	return err
}

func (s *store) query(ctx context.Context, stmt string, args ...any) *gocql.Query {
	return s.session.Query(stmt, args...).WithContext(ctx).Consistency(s.cons).RetryPolicy(neverAgain{})
}

// orderValues are the arguments of insertOrder. Missing values are unset rather
// than null, which would write tombstones; no later version removes a value.
func orderValues(o *Order) []any {
	var customer, address any = gocql.UnsetValue, gocql.UnsetValue
	if o.CustomerID != nil {
		customer = *o.CustomerID
	}
	if o.Address != nil {
		address = o.Address.cells()
	}
	return []any{
		o.ID, o.Version, string(o.Status), unsetIfEmpty(o.Invoice), customer, o.Country, o.PlacedAt.UnixMilli(), o.Currency,
		o.Lines, o.Total, o.CreatedAt.UnixMilli(), o.UpdatedAt.UnixMilli(), unsetIfNil(o.CancelledAt), unsetIfEmpty(o.CreditNote),
		unsetIfEmpty(o.CancelReason), o.EventID, address, unsetIfNil(o.ConfirmedAt), unsetIfNil(o.ShippedAt),
		unsetIfEmpty(o.Carrier), unsetIfEmpty(o.Tracking), o.writeTime(),
	}
}

func unsetIfNil(t *time.Time) any {
	if t == nil {
		return gocql.UnsetValue
	}
	return t.UnixMilli()
}

func unsetIfEmpty(s string) any {
	if s == "" {
		return gocql.UnsetValue
	}
	return s
}
