package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/cqlcode"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Errors of a Store.
var (
	// ErrNotFound is returned for a message that does not exist or was delivered.
	ErrNotFound = errors.New("no such scheduled message")
	// ErrReleased is returned for a released message, which can no longer be
	// cancelled.
	ErrReleased = errors.New("the message is already released")
	// ErrCancelled is returned for a cancelled message.
	ErrCancelled = errors.New("the message is cancelled")
)

// writtenBefore is subtracted from the write time of a message row. A
// lightweight transaction has the time of a server's clock, and must overwrite
// the row even if that clock is slow or the writer's is fast; otherwise a
// cancelled message would be published. An hour exceeds all clock skew and
// costs nothing.
const writtenBefore = time.Hour

// removedAfter is added to the time of a removal of a message row. The
// transactions before it have the times of servers' clocks; none may restore
// parts of the row.
const removedAfter = time.Hour

// KeepCancelled is the retention of a cancelled message.
const KeepCancelled = 30 * 24 * time.Hour

// Store executes the CQL of scheduled messages: each method makes one attempt
// of one statement or batch. Callers classify errors by cqlcode.FateOf. The
// session's keyspace contains the tables. A Store is safe for concurrent use.
type Store struct {
	session *gocql.Session
	cons    gocql.Consistency
	serial  gocql.Consistency
	timeout time.Duration
	table   outbox.Table
}

// NewStore returns a Store whose statements take at most timeout each. The
// caller closes the session.
func NewStore(session *gocql.Session, cons gocql.Consistency, timeout time.Duration) *Store {
	return &Store{session: session, cons: cons, serial: gocql.Serial, timeout: timeout, table: outbox.DefaultTable}
}

// everywhere returns the store that reads from all replicas, also those of other data centres.
// It finds every row that any of them has accepted, and fails while one of them is away.
func (s *Store) everywhere() *Store {
	all := *s
	all.cons = gocql.All
	return &all
}

const (
	messageColumns = "id, state, topic, key, payload, content_type, headers, client, created_at, deliver_at, changed_at, release_at"

	selectRowHead = "SELECT id, state, topic, key, client, created_at, deliver_at, changed_at FROM scheduled_messages WHERE id = ?"

	// Not an INSERT: without a row marker the row disappears with its last cell.
	putRow = "UPDATE scheduled_messages USING TIMESTAMP ? SET state = 'scheduled', topic = ?, key = ?, payload = ?, content_type = ?," +
		" headers = ?, client = ?, created_at = ?, deliver_at = ? WHERE id = ?"
	putSlot   = "INSERT INTO schedule_slots (bucket, shard, deliver_at, id, topic) VALUES (?, ?, ?, ?, ?)"
	putBucket = "INSERT INTO schedule_buckets (month, bucket) VALUES (?, ?)"

	selectRow  = "SELECT " + messageColumns + " FROM scheduled_messages WHERE id = ?"
	selectRows = "SELECT " + messageColumns + " FROM scheduled_messages WHERE id IN ?"
	// The kept columns of a cancelled message are written again, with the TTL.
	cancelRow = "UPDATE scheduled_messages USING TTL ? SET state = 'cancelled', changed_at = ?, topic = ?, key = ?, client = ?, created_at = ?," +
		" deliver_at = ?, payload = null, headers = null, content_type = null WHERE id = ? IF state = 'scheduled'"
	// A concurrent Hasten changes the time in the row: all writers must write the
	// same event.
	releaseRow   = "UPDATE scheduled_messages SET state = 'released', changed_at = ?, release_at = ? WHERE id = ? IF state = 'scheduled' AND deliver_at = ?"
	hastenRow    = "UPDATE scheduled_messages SET deliver_at = ?, changed_at = ? WHERE id = ? IF state = 'scheduled' AND deliver_at = ?"
	rereleaseRow = "UPDATE scheduled_messages SET release_at = ? WHERE id = ? IF release_at = ?"
	// Not conditional: nothing but a release, which is decided, comes before it.
	dropRow = "DELETE FROM scheduled_messages USING TIMESTAMP ? WHERE id = ?"

	selectSlots = "SELECT deliver_at, id, topic FROM schedule_slots WHERE bucket = ? AND shard = ? AND deliver_at >= ? AND deliver_at <= ? LIMIT ?"
	// The remaining slots of one time.
	selectSlotsAt = "SELECT deliver_at, id, topic FROM schedule_slots WHERE bucket = ? AND shard = ? AND deliver_at = ? AND id > ? LIMIT ?"

	dropSlot = "DELETE FROM schedule_slots WHERE bucket = ? AND shard = ? AND deliver_at = ? AND id = ?"

	selectBuckets = "SELECT bucket FROM schedule_buckets WHERE month = ? AND bucket >= ? AND bucket <= ? LIMIT ?"
	dropBucket    = "DELETE FROM schedule_buckets USING TIMESTAMP ? WHERE month = ? AND bucket = ?"

	selectEvent = "SELECT event_id FROM " + outbox.DefaultTableName + " WHERE aggregate_id = ? AND seq = 1"
)

// Append adds the statements that schedule m to b, for the tables of b's
// session; executed as a logged batch, all or none of them are applied. A
// service that adds its own statements to the batch schedules the message
// exactly if its rows are stored. The batch must have no timestamp of its own,
// and DefaultTimestamp(false).
//
// Repeating it is harmless until ten minutes after m.DeliverAt; it does not
// restore a cancelled or delivered message. It returns an
// *outbox.InvalidEventError or a *TooFarError, and leaves b unchanged, if m
// cannot be published.
func (s *Store) Append(b *gocql.Batch, m *Message, now time.Time) error {
	e := m.Event()
	if err := s.table.Validate(&e); err != nil {
		return err
	}
	if m.DeliverAt.After(now.Add(MaxAhead)) {
		return &TooFarError{m.DeliverAt}
	}
	// A retry whose time has passed is read now.
	at := m.DeliverAt
	if at.Before(now) {
		at = now
	}
	bucket := bucketAt(at)
	b.Query(putRow, m.CreatedAt.Add(-writtenBefore).UnixMicro(), m.Topic, unset(m.Key), m.Payload, unset(m.ContentType), m.Headers, m.Client,
		m.CreatedAt.UnixMilli(), m.DeliverAt.UnixMilli(), m.ID)
	b.Query(putSlot, bucket, shardFor(m.ID), at.UnixMilli(), m.ID, m.Topic)
	b.Query(putBucket, monthAt(bucket), bucket)
	return nil
}

func unset(s string) any {
	if s == "" {
		return gocql.UnsetValue
	}
	return s
}

// Put stores m. After an error with an unknown outcome it may be stored now or
// later.
func (s *Store) Put(ctx context.Context, m *Message, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	b := s.session.Batch(gocql.LoggedBatch).WithContext(ctx).RetryPolicy(cqlcode.NeverAgain{}).DefaultTimestamp(false)
	b.SetConsistency(s.cons)
	if err := s.Append(b, m, now); err != nil {
		return err
	}
	if err := b.Exec(); err != nil {
		return fmt.Errorf("schedule message %s: %w", m.ID, err)
	}
	return nil
}

// Read returns a message that is waiting, is being written to the outbox, or was
// cancelled less than KeepCancelled ago; otherwise ErrNotFound.
func (s *Store) Read(ctx context.Context, id gocql.UUID) (Message, error) {
	return s.read(ctx, id, s.cons)
}

// A read at the serial consistency first completes a decided change.
func (s *Store) read(ctx context.Context, id gocql.UUID, cons gocql.Consistency) (Message, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var m Message
	err := s.query(ctx, selectRow, id).Consistency(cons).Idempotent(true).RetryPolicy(cqlcode.OtherNode{}).Scan(m.dest()...)
	switch {
	case errors.Is(err, gocql.ErrNotFound):
		return Message{}, fmt.Errorf("message %s: %w", id, ErrNotFound)
	case err != nil:
		return Message{}, fmt.Errorf("read scheduled message %s: %w", id, err)
	}
	return m, nil
}

// dest returns the destinations of messageColumns.
func (m *Message) dest() []any {
	return []any{
		&m.ID, (*string)(&m.State), &m.Topic, &m.Key, &m.Payload, &m.ContentType, &m.Headers, &m.Client,
		&m.CreatedAt, &m.DeliverAt, &m.ChangedAt, &m.releaseAt,
	}
}

// readAll returns the messages of slots that exist, by id.
func (s *Store) readAll(ctx context.Context, slots []slot) (map[gocql.UUID]Message, error) {
	out := make(map[gocql.UUID]Message, len(slots))
	if len(slots) == 1 {
		m, err := s.Read(ctx, slots[0].id)
		if errors.Is(err, ErrNotFound) {
			return out, nil
		}
		out[m.ID] = m
		return out, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	ids := make([]gocql.UUID, len(slots))
	for i := range slots {
		ids[i] = slots[i].id
	}
	iter := s.query(ctx, selectRows, ids).Idempotent(true).RetryPolicy(cqlcode.OtherNode{}).Iter()
	for {
		var m Message
		if !iter.Scan(m.dest()...) {
			break
		}
		out[m.ID] = m
	}
	if err := iter.Close(); err != nil {
		return nil, fmt.Errorf("read %d scheduled messages: %w", len(slots), err)
	}
	return out, nil
}

// readHead is Read without payload and headers.
func (s *Store) readHead(ctx context.Context, id gocql.UUID) (Message, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var m Message
	err := s.query(ctx, selectRowHead, id).Idempotent(true).RetryPolicy(cqlcode.OtherNode{}).Scan(
		&m.ID, (*string)(&m.State), &m.Topic, &m.Key, &m.Client, &m.CreatedAt, &m.DeliverAt, &m.ChangedAt)
	switch {
	case errors.Is(err, gocql.ErrNotFound):
		return Message{}, fmt.Errorf("message %s: %w", id, ErrNotFound)
	case err != nil:
		return Message{}, fmt.Errorf("read scheduled message %s: %w", id, err)
	}
	return m, nil
}

// Cancel cancels m, as read before: after nil it is never published. It returns
// nil for a message that is already cancelled, ErrReleased or ErrNotFound if it
// is too late, and any other error if the outcome is unknown.
func (s *Store) Cancel(ctx context.Context, m *Message, now time.Time) error {
	applied, err := s.change(ctx, cancelRow, int(KeepCancelled/time.Second), now.UnixMilli(), m.Topic, unset(m.Key), m.Client,
		m.CreatedAt.UnixMilli(), m.DeliverAt.UnixMilli(), m.ID)
	if err == nil && applied {
		s.dropSlot(ctx, m)
		return nil
	}
	// The read completes a decided conditional statement.
	got, readErr := s.read(ctx, m.ID, s.serial)
	switch {
	case errors.Is(readErr, ErrNotFound) && err == nil:
		return readErr
	case readErr != nil:
		return fmt.Errorf("cancel message %s: %w", m.ID, errors.Join(err, readErr))
	case got.State == Cancelled:
		s.dropSlot(ctx, m)
		return nil
	case got.State == Released:
		return fmt.Errorf("message %s: %w", m.ID, ErrReleased)
	case err != nil:
		return fmt.Errorf("cancel message %s: %w", m.ID, err)
	}
	return fmt.Errorf("cancel message %s: it is %s, and yet the change was refused", m.ID, got.State)
}

// dropSlot removes the slot of m; the scheduler would do so, too.
func (s *Store) dropSlot(ctx context.Context, m *Message) {
	_ = s.dropSlots(ctx, newSlot(m))
}

func (s *Store) change(ctx context.Context, stmt string, args ...any) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.query(ctx, stmt, args...).SerialConsistency(s.serial).MapScanCAS(map[string]any{})
}

// release decides the release of m, with an outbox row written at at. False
// means that it was cancelled, released or hastened before.
func (s *Store) release(ctx context.Context, m *Message, at time.Time) (bool, error) {
	applied, err := s.change(ctx, releaseRow, at.UnixMilli(), at.UnixMicro(), m.ID, m.DeliverAt.UnixMilli())
	if err != nil {
		return false, fmt.Errorf("release message %s: %w", m.ID, err)
	}
	return applied, nil
}

// rerelease moves the write time of a released message's outbox row.
func (s *Store) rerelease(ctx context.Context, m *Message, at time.Time) (bool, error) {
	applied, err := s.change(ctx, rereleaseRow, at.UnixMicro(), m.ID, m.releaseAt)
	if err != nil {
		return false, fmt.Errorf("retry release of message %s: %w", m.ID, err)
	}
	return applied, nil
}

// hand writes the events of messages that were released at one time. The same
// message is the same row for every write, except that it is for no time if its clock is ahead of
// the one that dates the row. serverTime lets the server choose its
// time. The batch is not atomic: after an error some of the rows may be written.
func (s *Store) hand(ctx context.Context, serverTime bool, timeout time.Duration, ds ...*dueMessage) error {
	ctx, cancel := context.WithTimeout(ctx, min(timeout, s.timeout))
	defer cancel()
	b := s.batch(ctx)
	if !serverTime {
		b.WithTimestamp(ds[0].releaseAt)
	}
	for _, d := range ds {
		e := d.Event()
		if serverTime || e.DeliverAt.After(time.Now()) {
			e.DeliverAt = time.Time{} // it is due by the clock of the scheduler, and would not be by that which dates the row
		}
		stmt, args, err := s.table.Insert(e) // Append refuses a batch that is not atomic
		if err != nil {
			return err
		}
		b.Query(stmt, args...)
	}
	if err := b.Exec(); err != nil {
		return fmt.Errorf("hand %d messages from %s to the outbox: %w", len(ds), ds[0].ID, err)
	}
	return nil
}

// isInOutbox reports whether the outbox contains the event of the message.
func (s *Store) isInOutbox(ctx context.Context, id gocql.UUID) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var event gocql.UUID
	err := s.query(ctx, selectEvent, id.String()).Idempotent(true).RetryPolicy(cqlcode.OtherNode{}).Scan(&event)
	if errors.Is(err, gocql.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find the event of message %s: %w", id, err)
	}
	return event == id, nil
}

// forget removes released messages whose events are in the outbox. It is written
// at QUORUM, as transactions of all regions read.
func (s *Store) forget(ctx context.Context, now time.Time, ds ...*dueMessage) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	b := s.batch(ctx)
	b.SetConsistency(gocql.Quorum)
	for _, d := range ds {
		b.Query(dropRow, now.Add(removedAfter).UnixMicro(), d.ID)
	}
	if err := b.Exec(); err != nil {
		return fmt.Errorf("forget %d messages from %s: %w", len(ds), ds[0].ID, err)
	}
	return nil
}

// query returns a statement with the time of the database, like the batches
// that write slots: a slot that a process with a fast clock removes could not
// be written again.
func (s *Store) query(ctx context.Context, stmt string, args ...any) *gocql.Query {
	return s.session.Query(stmt, args...).WithContext(ctx).Consistency(s.cons).RetryPolicy(cqlcode.NeverAgain{}).DefaultTimestamp(false)
}

// batch is query for several statements, which are not atomic.
func (s *Store) batch(ctx context.Context) *gocql.Batch {
	b := s.session.Batch(gocql.UnloggedBatch).WithContext(ctx).RetryPolicy(cqlcode.NeverAgain{}).DefaultTimestamp(false)
	b.SetConsistency(s.cons)
	return b
}
