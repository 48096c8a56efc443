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
	// ErrNotFound: there is no such message, or it was delivered.
	ErrNotFound = errors.New("no such scheduled message")
	// ErrReleased: its time has come; it can no longer be taken back.
	ErrReleased = errors.New("the message is on its way")
	// ErrCancelled: it was taken back.
	ErrCancelled = errors.New("the message was taken back")
)

// writtenBefore is how far in the past the row of a message is written. A
// lightweight transaction has the time of a server's clock, and must cover the
// row even if that clock is as far behind as the writer's is ahead; otherwise a
// message that was taken back would go out. An hour is more than clocks differ,
// and costs nothing.
const writtenBefore = time.Hour

// KeepCancelled is for how long a cancelled message can be seen.
const KeepCancelled = 30 * 24 * time.Hour

// Store is the CQL of scheduled messages: one method, one statement or batch,
// one attempt. What an error means, cqlcode.FateOf says. The session's keyspace
// holds the tables. It is safe for concurrent use.
type Store struct {
	session *gocql.Session
	cons    gocql.Consistency
	serial  gocql.Consistency
	timeout time.Duration
	table   outbox.Table
}

// NewStore returns a Store whose statements take at most timeout each. The
// session stays the caller's to close.
func NewStore(session *gocql.Session, cons gocql.Consistency, timeout time.Duration) *Store {
	return &Store{session: session, cons: cons, serial: gocql.Serial, timeout: timeout, table: outbox.DefaultTable}
}

const (
	messageColumns = "id, state, topic, key, payload, content_type, headers, client, created_at, deliver_at, changed_at, release_at"

	selectRowHead = "SELECT id, state, topic, key, client, created_at, deliver_at, changed_at FROM scheduled_messages WHERE id = ?"

	// Not an INSERT: without a row marker the row goes when its last cell does.
	putRow = "UPDATE scheduled_messages USING TIMESTAMP ? SET state = 'scheduled', topic = ?, key = ?, payload = ?, content_type = ?," +
		" headers = ?, client = ?, created_at = ?, deliver_at = ? WHERE id = ?"
	putSlot   = "INSERT INTO schedule_slots (bucket, shard, deliver_at, id, topic) VALUES (?, ?, ?, ?, ?)"
	putBucket = "INSERT INTO schedule_buckets (month, bucket) VALUES (?, ?)"

	selectRow = "SELECT " + messageColumns + " FROM scheduled_messages WHERE id = ?"
	// What is kept of a cancelled message is written again, to have the TTL.
	cancelRow = "UPDATE scheduled_messages USING TTL ? SET state = 'cancelled', changed_at = ?, topic = ?, key = ?, client = ?, created_at = ?," +
		" deliver_at = ?, payload = null, headers = null, content_type = null WHERE id = ? IF state = 'scheduled'"
	// Whoever hastens it at the same moment has the other time in the row: the event
	// must be the same for all who write it.
	releaseRow   = "UPDATE scheduled_messages SET state = 'released', changed_at = ?, release_at = ? WHERE id = ? IF state = 'scheduled' AND deliver_at = ?"
	hastenRow    = "UPDATE scheduled_messages SET deliver_at = ?, changed_at = ? WHERE id = ? IF state = 'scheduled' AND deliver_at = ?"
	rereleaseRow = "UPDATE scheduled_messages SET release_at = ? WHERE id = ? IF release_at = ?"
	dropRow      = "DELETE FROM scheduled_messages WHERE id = ? IF state = 'released'"

	selectSlots = "SELECT deliver_at, id, topic FROM schedule_slots WHERE bucket = ? AND shard = ? AND deliver_at >= ? AND deliver_at <= ? LIMIT ?"
	// The rest of those with one time.
	selectSlotsAt = "SELECT deliver_at, id, topic FROM schedule_slots WHERE bucket = ? AND shard = ? AND deliver_at = ? AND id > ? LIMIT ?"

	dropSlot = "DELETE FROM schedule_slots WHERE bucket = ? AND shard = ? AND deliver_at = ? AND id = ?"

	selectBuckets = "SELECT bucket FROM schedule_buckets WHERE month = ? AND bucket >= ? AND bucket <= ? LIMIT ?"
	dropBucket    = "DELETE FROM schedule_buckets USING TIMESTAMP ? WHERE month = ? AND bucket = ?"

	selectEvent = "SELECT event_id FROM " + outbox.DefaultTableName + " WHERE aggregate_id = ? AND seq = 1"
)

// Append adds to b, for the tables of b's session, what schedules m; executed as
// a logged batch all of it is stored or none. A service that puts its own
// statements into the same batch schedules the message exactly if its rows are
// stored. The batch must have no timestamp of its own, and DefaultTimestamp(false).
//
// Executing it again is harmless until m.DeliverAt and ten minutes; it
// brings no cancelled or delivered message back. It returns an
// *outbox.InvalidEventError or a *TooFarError, and leaves b as it was, if m
// cannot be published.
func (s *Store) Append(b *gocql.Batch, m *Message, now time.Time) error {
	e := m.Event()
	if err := s.table.Validate(&e); err != nil {
		return err
	}
	if m.DeliverAt.After(now.Add(MaxAhead)) {
		return &TooFarError{m.DeliverAt}
	}
	// A retry of one whose time has passed is looked at now.
	at := m.DeliverAt
	if at.Before(now) {
		at = now
	}
	bucket := bucketOf(at)
	b.Query(putRow, m.CreatedAt.Add(-writtenBefore).UnixMicro(), m.Topic, unset(m.Key), m.Payload, unset(m.ContentType), m.Headers, m.Client,
		m.CreatedAt.UnixMilli(), m.DeliverAt.UnixMilli(), m.ID)
	b.Query(putSlot, bucket, shardOf(m.ID), at.UnixMilli(), m.ID, m.Topic)
	b.Query(putBucket, monthOf(bucket), bucket)
	return nil
}

func unset(s string) any {
	if s == "" {
		return gocql.UnsetValue
	}
	return s
}

// Put stores m. After an error of an unknown fate it may be stored, or become so later.
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

// Read returns a message that waits, is on its way into the outbox, or was
// cancelled less than KeepCancelled ago; otherwise ErrNotFound.
func (s *Store) Read(ctx context.Context, id gocql.UUID) (Message, error) {
	return s.read(ctx, id, s.cons)
}

// read at the serial consistency first completes a change that was decided and
// left undone.
func (s *Store) read(ctx context.Context, id gocql.UUID, cons gocql.Consistency) (Message, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var m Message
	err := s.query(ctx, selectRow, id).Consistency(cons).Idempotent(true).RetryPolicy(cqlcode.OtherNode{}).Scan(
		&m.ID, (*string)(&m.State), &m.Topic, &m.Key, &m.Payload, &m.ContentType, &m.Headers, &m.Client,
		&m.CreatedAt, &m.DeliverAt, &m.ChangedAt, &m.releaseAt)
	switch {
	case errors.Is(err, gocql.ErrNotFound):
		return Message{}, fmt.Errorf("message %s: %w", id, ErrNotFound)
	case err != nil:
		return Message{}, fmt.Errorf("read scheduled message %s: %w", id, err)
	}
	return m, nil
}

// readHead is Read without what the message carries.
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

// Cancel takes m back, as it was read: after nil it is never published. It
// returns nil for one that was cancelled before, ErrReleased or ErrNotFound for
// one that is too late, and any other error if that is not known.
func (s *Store) Cancel(ctx context.Context, m *Message, now time.Time) error {
	applied, err := s.change(ctx, cancelRow, int(KeepCancelled/time.Second), now.UnixMilli(), m.Topic, unset(m.Key), m.Client,
		m.CreatedAt.UnixMilli(), m.DeliverAt.UnixMilli(), m.ID)
	if err == nil && applied {
		s.dropSlotOf(ctx, m)
		return nil
	}
	// What is decided and left undone is completed by looking.
	got, readErr := s.read(ctx, m.ID, s.serial)
	switch {
	case errors.Is(readErr, ErrNotFound) && err == nil:
		return readErr
	case readErr != nil:
		return fmt.Errorf("cancel message %s: %w", m.ID, errors.Join(err, readErr))
	case got.State == Cancelled:
		s.dropSlotOf(ctx, m)
		return nil
	case got.State == Released:
		return fmt.Errorf("message %s: %w", m.ID, ErrReleased)
	case err != nil:
		return fmt.Errorf("cancel message %s: %w", m.ID, err)
	}
	return fmt.Errorf("cancel message %s: it is %s, and yet the change was refused", m.ID, got.State)
}

// dropSlotOf removes what points to m; a scheduler that meets it does so too.
func (s *Store) dropSlotOf(ctx context.Context, m *Message) {
	_ = s.dropSlot(ctx, slot{bucket: bucketOf(m.DeliverAt), at: m.DeliverAt, id: m.ID})
}

func (s *Store) change(ctx context.Context, stmt string, args ...any) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.query(ctx, stmt, args...).SerialConsistency(s.serial).MapScanCAS(map[string]any{})
}

// release decides that m goes out, with an outbox row written at at. False
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
		return false, fmt.Errorf("release message %s again: %w", m.ID, err)
	}
	return applied, nil
}

// hand writes the event of a released message. The same message is the same
// row, however often it is written. serverTime lets the server choose its time.
func (s *Store) hand(ctx context.Context, m *Message, serverTime bool, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, min(timeout, s.timeout))
	defer cancel()
	b := s.session.Batch(gocql.UnloggedBatch).WithContext(ctx).RetryPolicy(cqlcode.NeverAgain{})
	b.SetConsistency(s.cons)
	if serverTime {
		b.DefaultTimestamp(false)
	} else {
		b.WithTimestamp(m.releaseAt)
	}
	if err := s.table.Append(b, m.Event()); err != nil {
		return err
	}
	if err := b.Exec(); err != nil {
		return fmt.Errorf("hand message %s to the outbox: %w", m.ID, err)
	}
	return nil
}

// handed says whether the message's event can be read in the outbox.
func (s *Store) handed(ctx context.Context, id gocql.UUID) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var event gocql.UUID
	err := s.query(ctx, selectEvent, id).Idempotent(true).RetryPolicy(cqlcode.OtherNode{}).Scan(&event)
	if errors.Is(err, gocql.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the event of message %s: %w", id, err)
	}
	return event == id, nil
}

// forget removes a released message whose event is in the outbox.
func (s *Store) forget(ctx context.Context, id gocql.UUID) error {
	if _, err := s.change(ctx, dropRow, id); err != nil {
		return fmt.Errorf("forget message %s: %w", id, err)
	}
	return nil
}

// query is a statement with the database's time, as the batches have that write slots:
// a slot that is removed by a clock that is ahead could not be written again.
func (s *Store) query(ctx context.Context, stmt string, args ...any) *gocql.Query {
	return s.session.Query(stmt, args...).WithContext(ctx).Consistency(s.cons).RetryPolicy(cqlcode.NeverAgain{}).DefaultTimestamp(false)
}
