package schedule

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// everywhere returns the store that reads from all replicas, also replicas of other data
// centres. It finds every row that any of them has accepted, and fails while one of them is away.
func (s *Store) everywhere() *Store {
	all := *s
	all.cons = gocql.All
	return &all
}

const (
	messageColumns = "id, state, topic, key, payload, content_type, headers, client, created_at, deliver_at, changed_at"

	selectRowHead = "SELECT id, state, topic, key, client, created_at, deliver_at, changed_at FROM scheduled_messages WHERE id = ?"

	// Not an INSERT: without a row marker the row disappears with its last cell.
	putRow = "UPDATE scheduled_messages USING TIMESTAMP ? SET topic = ?, key = ?, payload = ?, content_type = ?," +
		" headers = ?, client = ?, created_at = ?, deliver_at = ? WHERE id = ?"
	putSlot   = "INSERT INTO schedule_slots (bucket, shard, deliver_at, id, topic) VALUES (?, ?, ?, ?, ?)"
	putBucket = "INSERT INTO schedule_buckets (month, bucket) VALUES (?, ?)"

	selectRow  = "SELECT " + messageColumns + " FROM scheduled_messages WHERE id = ?"
	selectRows = "SELECT " + messageColumns + " FROM scheduled_messages WHERE id IN ?"
	// The kept columns of a cancelled message are written again, with the TTL. Not
	// conditional: its slot has decided.
	markRow = "UPDATE scheduled_messages USING TTL ? SET state = 'cancelled', changed_at = ?, topic = ?, key = ?, client = ?, created_at = ?," +
		" deliver_at = ?, payload = null, headers = null, content_type = null WHERE id = ?"
	// Not conditional: nothing but a release, which is decided, comes before it.
	dropRow = "DELETE FROM scheduled_messages USING TIMESTAMP ? WHERE id = ?"

	slotKey = " WHERE bucket = ? AND shard = ? AND deliver_at = ? AND id = ?"
	// A slot that is removed, or not there yet, has no topic. A concurrent Hasten
	// changes due_at: all writers must write the same event.
	ifWaiting     = slotKey + " IF topic = ? AND state = null AND due_at = ?"
	cancelSlot    = "UPDATE schedule_slots SET state = 'cancelled', changed_at = ?" + slotKey + " IF topic = ? AND state = null"
	releaseSlot   = "UPDATE schedule_slots SET state = 'released', changed_at = ?, release_at = ?" + ifWaiting
	hastenSlot    = "UPDATE schedule_slots SET due_at = ?, changed_at = ?" + ifWaiting
	rereleaseSlot = "UPDATE schedule_slots SET release_at = ?" + slotKey + " IF release_at = ?"

	selectState = "SELECT state, due_at, changed_at, release_at FROM schedule_slots" + slotKey
	selectSlots = "SELECT deliver_at, id, topic, changed_at FROM schedule_slots WHERE bucket = ? AND shard = ? AND deliver_at >= ? AND deliver_at <= ? LIMIT ?"
	// The remaining slots of one time.
	selectSlotsAt = "SELECT deliver_at, id, topic, changed_at FROM schedule_slots WHERE bucket = ? AND shard = ? AND deliver_at = ? AND id > ? LIMIT ?"

	dropSlot = "DELETE FROM schedule_slots" + slotKey
	endSlot  = "DELETE FROM schedule_slots USING TIMESTAMP ?" + slotKey

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
	b.Query(putRow, m.CreatedAt.Add(-writtenBefore).UnixMicro(), m.Topic, unset(m.Key), m.Payload, unset(m.ContentType), m.Headers, m.Client,
		m.CreatedAt.UnixMilli(), m.DeliverAt.UnixMilli(), m.ID)
	addSlot(b, m.slot())
	if m.DeliverAt.Before(now) { // a retry whose time has passed is read now
		addSlot(b, m.slotAt(now))
	}
	return nil
}

// addSlot adds the statements that write a slot.
func addSlot(b *gocql.Batch, x slot) {
	b.Query(putSlot, x.bucket, shardFor(x.id), x.at.UnixMilli(), x.id, x.topic)
	b.Query(putBucket, monthAt(x.bucket), x.bucket)
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

// read reads a message and its state. A read of the state at the serial
// consistency first completes a decided change.
func (s *Store) read(ctx context.Context, id gocql.UUID, state gocql.Consistency) (Message, error) {
	m, err := s.readRow(ctx, id, s.cons)
	if err != nil || m.State == Cancelled {
		return m, err
	}
	if err := s.readState(ctx, &m, state); !errors.Is(err, ErrNotFound) {
		return m, err
	}
	// Its slot is removed after the row, or after the mark in it.
	if m, err = s.readRow(ctx, id, gocql.Quorum); err == nil && m.State != Cancelled {
		return Message{}, fmt.Errorf("slot of message %s: %w", id, ErrNotFound)
	}
	return m, err
}

// readState reads the state of m, whose row was read, from its slot. It returns
// ErrNotFound without one.
func (s *Store) readState(ctx context.Context, m *Message, cons gocql.Consistency) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var dueAt time.Time
	at := m.slot()
	err := s.query(ctx, selectState, at.key()...).Consistency(cons).Idempotent(true).RetryPolicy(cqlcode.OtherNode{}).Scan(
		(*string)(&m.State), &dueAt, &m.ChangedAt, &m.releaseAt)
	switch {
	case errors.Is(err, gocql.ErrNotFound):
		return fmt.Errorf("slot of message %s: %w", m.ID, ErrNotFound)
	case err != nil:
		return fmt.Errorf("read the state of message %s: %w", m.ID, err)
	}
	if m.State == "" {
		m.State = Waiting
	}
	if m.DeliverAt, m.storedFor = at.at, (time.Time{}); !dueAt.IsZero() {
		m.DeliverAt, m.storedFor = dueAt.UTC(), at.at
	}
	return nil
}

// readRow reads the row of a message; the state is empty unless it is cancelled.
func (s *Store) readRow(ctx context.Context, id gocql.UUID, cons gocql.Consistency) (Message, error) {
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
		&m.CreatedAt, &m.DeliverAt, &m.ChangedAt,
	}
}

// readAll returns the rows of the messages of slots that exist, by id. It is at
// QUORUM, like removals and marks of rows: a local quorum may lack them, and a slot
// that a retry wrote again after the hour of endSlots waits.
func (s *Store) readAll(ctx context.Context, slots []slot) (map[gocql.UUID]Message, error) {
	out := make(map[gocql.UUID]Message, len(slots))
	if len(slots) == 1 {
		m, err := s.readRow(ctx, slots[0].id, gocql.Quorum)
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
	iter := s.query(ctx, selectRows, ids).Consistency(gocql.Quorum).Idempotent(true).RetryPolicy(cqlcode.OtherNode{}).Iter()
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

// readHead is readRow without payload and headers.
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
	if m.State == Cancelled {
		return nil
	}
	x := m.slot()
	applied, err := s.change(ctx, cancelSlot, slices.Concat([]any{now.UnixMilli()}, x.key(), []any{m.Topic})...)
	if err == nil && applied {
		_ = s.endCancelled(ctx, m, now, now) // the scheduler would do so, too
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
		_ = s.endCancelled(ctx, &got, got.ChangedAt, now)
		return nil
	case got.State == Released:
		return fmt.Errorf("message %s: %w", m.ID, ErrReleased)
	case err != nil:
		return fmt.Errorf("cancel message %s: %w", m.ID, err)
	}
	return fmt.Errorf("cancel message %s: it is %s, and yet the change was refused", m.ID, got.State)
}

// endCancelled marks the row of a message that its slot cancelled at a time, and
// then, now, removes its slots. Without the mark, a retry of its writer would restore
// it. The removal is of now, as one of the time of a cancellation long ago would remove
// the state, and leave what a retry wrote later: a slot that waits.
func (s *Store) endCancelled(ctx context.Context, m *Message, at, now time.Time) error {
	mark := func() error {
		ctx, cancel := context.WithTimeout(ctx, s.timeout)
		defer cancel()
		return s.query(ctx, markRow, int(KeepCancelled/time.Second), at.UnixMilli(), m.Topic, unset(m.Key), m.Client,
			m.CreatedAt.UnixMilli(), m.DeliverAt.UnixMilli(), m.ID).Consistency(gocql.Quorum).Idempotent(true).Exec()
	}
	if err := mark(); err != nil {
		return fmt.Errorf("mark message %s as cancelled: %w", m.ID, err)
	}
	return s.endSlots(ctx, now, m.slots()...)
}

// dropEarlySlot removes the slot of a time to which Hasten has moved m; the
// scheduler would do so, too.
func (s *Store) dropEarlySlot(ctx context.Context, m *Message) {
	if !m.storedFor.IsZero() {
		_ = s.dropSlots(ctx, m.slotAt(m.DeliverAt))
	}
}

func (s *Store) change(ctx context.Context, stmt string, args ...any) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	return s.query(ctx, stmt, args...).SerialConsistency(s.serial).MapScanCAS(map[string]any{})
}

// release decides the release of m, with an outbox row written at at. False
// means that it was cancelled, released or hastened before.
func (s *Store) release(ctx context.Context, m *Message, at time.Time) (bool, error) {
	applied, err := s.change(ctx, releaseSlot, m.releaseArguments(at)...)
	if err != nil {
		return false, fmt.Errorf("release message %s: %w", m.ID, err)
	}
	return applied, nil
}

// releaseArguments returns the arguments of releaseSlot.
func (m *Message) releaseArguments(at time.Time) []any {
	x := m.slot()
	return slices.Concat([]any{at.UnixMilli(), at.UnixMicro()}, x.key(), []any{m.Topic, m.dueAt()})
}

// releaseAll is release for messages whose slots are in one partition, by one
// transaction: all of them are released or, without an error, none. Then left has the
// messages that the transaction has found waiting for their times.
func (s *Store) releaseAll(ctx context.Context, ds []*dueMessage, at time.Time) (applied bool, left []*dueMessage, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	b := s.batch(ctx).SerialConsistency(s.serial)
	byID := make(map[gocql.UUID]*dueMessage, len(ds))
	for _, d := range ds {
		b.Query(releaseSlot, d.releaseArguments(at)...)
		byID[d.ID] = d
	}
	row := map[string]any{}
	applied, iter, err := s.session.MapExecuteBatchCAS(b, row)
	if iter != nil {
		for more := err == nil && !applied; more; more = iter.MapScan(row) {
			id, _ := row["id"].(gocql.UUID)
			topic, _ := row["topic"].(string)
			state, _ := row["state"].(string)
			dueAt, _ := row["due_at"].(time.Time)
			if d := byID[id]; d != nil && topic == d.Topic && state == "" && dueAt.IsZero() {
				left = append(left, d)
			}
			row = map[string]any{}
		}
		err = errors.Join(err, iter.Close())
	}
	if err != nil {
		return false, nil, fmt.Errorf("release %d messages from %s: %w", len(ds), ds[0].ID, err)
	}
	return applied, left, nil
}

// rerelease moves the write time of a released message's outbox row.
func (s *Store) rerelease(ctx context.Context, m *Message, at time.Time) (bool, error) {
	x := m.slot()
	applied, err := s.change(ctx, rereleaseSlot, slices.Concat([]any{at.UnixMicro()}, x.key(), []any{m.releaseAt})...)
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
