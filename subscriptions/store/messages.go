package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"
)

// States of a stored message.
const (
	// StateDeferred: the message is delivered at NextAt.
	StateDeferred = "deferred"
	// StateBehind: the message waits behind another one of its key.
	StateBehind = "behind"
	// StateDeadLettering: the message becomes a dead letter after its last delivery.
	StateDeadLettering = "dead_lettering"
	// StateRejected: the message becomes a dead letter because a consumer rejected it.
	StateRejected = "rejected"
)

// maxError is the maximum length of Stored.Error in bytes; longer ones are cut.
const maxError = 2000

// Stored is a message that is stored until it is settled. Times have milliseconds.
type Stored struct {
	Offset int64
	// Key is the key whose order the message has; it may contain any bytes.
	Key   string
	State string
	// Attempts is the number of deliveries that have ended.
	Attempts int
	// NextAt is the time of the next delivery, FirstAt that of the first one. RecordAt, of the
	// record, is set in the results of Messages and Message.
	NextAt, FirstAt, RecordAt time.Time
	// Error is the last failure.
	Error string
	// Record is the record, or nil in the results of Messages. Save with nil keeps the
	// stored record: the message must be stored.
	Record *kgo.Record
	// DeadLetter is the id of the dead letter that is replayed, or zero; Edited its edit that
	// Record contains.
	DeadLetter, Edited gocql.UUID
}

// ReplayOffset returns the Offset of the replay of a dead letter whose record has the offset.
// It is negative: the offsets of records belong to the topic as it is now, and a dead letter
// may be older.
func ReplayOffset(offset int64) int64 { return math.MinInt64 + offset }

// RecordOffset returns the offset of the record of a stored message.
func RecordOffset(offset int64) int64 {
	if offset < 0 {
		return offset - math.MinInt64
	}
	return offset
}

// Limits of a conditional batch. ScyllaDB warns above 128 KiB and refuses above 1 MiB; a
// larger record is a statement of its own.
const (
	maxRows  = 200
	maxBytes = 100 << 10
	// rowBytes is the size of a row without its variable parts.
	rowBytes = 200
)

// pageSize is the number of rows of a page of Messages.
const pageSize = 1000

// Messages returns the stored messages of a partition without their records, by offset.
// Called after ClaimPartition it returns all writes of former owners, and none is applied
// later. It costs a serial read for each 1,000 messages.
func (s *Store) Messages(ctx context.Context, p Partition) ([]Stored, error) {
	st, err := s.readStatics(ctx, p)
	if err != nil {
		return nil, fmt.Errorf("read the stored messages of partition %s: %w", p, err)
	}
	replays, err := s.messages(ctx, p, math.MinInt64, -1)
	if err != nil {
		return nil, err
	}
	records, err := s.messages(ctx, p, st.first, math.MaxInt64)
	return append(replays, records...), err
}

// messages returns the messages of a range of offsets.
func (s *Store) messages(ctx context.Context, p Partition, from, to int64) (out []Stored, err error) {
	for {
		var page []Stored
		err := s.until(ctx, func() error {
			page, err = s.page(ctx, p, from, to)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read the stored messages of partition %s from offset %d: %w", p, from, err)
		}
		out = append(out, page...)
		if len(page) < pageSize {
			return out, nil
		}
		from = page[len(page)-1].Offset + 1
	}
}

// page returns up to a page of messages.
func (s *Store) page(ctx context.Context, p Partition, from, to int64) (out []Stored, err error) {
	err = s.withTimeout(ctx, func(ctx context.Context) error {
		iter := s.serialRead(ctx, s.stmt.messages, p.args(from, to, pageSize)...).PageSize(pageSize).Iter()
		for {
			var m Stored
			var key []byte
			if !iter.Scan(&m.Offset, &key, &m.State, &m.Attempts, &m.NextAt, &m.FirstAt, &m.Error, &m.DeadLetter, &m.Edited, &m.RecordAt) {
				return iter.Close()
			}
			m.Key, m.NextAt, m.FirstAt, m.RecordAt = string(key), utc(m.NextAt), utc(m.FirstAt), utc(m.RecordAt)
			out = append(out, m)
		}
	})
	return out, err
}

// Message returns a stored message without its record. The error is ErrNoRecord if the
// message is not stored.
func (s *Store) Message(ctx context.Context, p Partition, offset int64) (m Stored, err error) {
	var key []byte
	err = s.until(ctx, func() error {
		return s.withTimeout(ctx, func(ctx context.Context) error {
			return s.serialRead(ctx, s.stmt.message, p.args(offset)...).Scan(&key, &m.State, &m.Attempts, &m.NextAt, &m.FirstAt, &m.Error, &m.DeadLetter, &m.Edited, &m.RecordAt)
		})
	})
	if errors.Is(err, gocql.ErrNotFound) || err == nil && m.State == "" { // static columns alone
		err = ErrNoRecord
	}
	if err != nil {
		return Stored{}, fmt.Errorf("read message %s@%d: %w", p, offset, err)
	}
	m.Offset, m.Key, m.NextAt, m.FirstAt, m.RecordAt = offset, string(key), utc(m.NextAt), utc(m.FirstAt), utc(m.RecordAt)
	return m, nil
}

// Record returns the record of a stored message: topic, partition, offset, timestamp, key,
// value and headers equal the saved ones, byte for byte. The error is ErrNoRecord if
// the message is not stored.
func (s *Store) Record(ctx context.Context, p Partition, offset int64) (*kgo.Record, error) {
	r := &kgo.Record{Topic: p.Topic, Partition: p.Number, Offset: RecordOffset(offset)}
	var state string
	var at int64
	var headers []byte
	err := s.until(ctx, func() error {
		return s.withTimeout(ctx, func(ctx context.Context) error {
			return s.query(ctx, s.stmt.record, p.args(offset)...).Scan(&state, &at, &r.Key, &r.Value, &headers)
		})
	})
	if err == nil {
		r.Timestamp = time.UnixMilli(at)
		r.Headers, err = decodeHeaders(headers)
	}
	if errors.Is(err, gocql.ErrNotFound) {
		err = ErrNoRecord
	}
	if err != nil {
		return nil, fmt.Errorf("read the record of message %s@%d: %w", p, offset, err)
	}
	return r, nil
}

// Save stores messages, or replaces stored ones, in chunks; each chunk is applied
// completely or not at all. After an error the first chunks may be applied: with ErrFenced
// the rest is not, and with ErrUnknown one may be. Saving again is harmless. ScyllaDB refuses a record
// above half of its commit log segment, 16 MiB by default.
func (s *Store) Save(ctx context.Context, p Partition, epoch int64, messages []Stored) error {
	pt := s.partition(p)
	for len(messages) > 0 {
		c := change{lowest: math.MaxInt64}
		size, n := 0, 0
		for ; n < len(messages) && n < maxRows; n++ {
			m := &messages[n]
			args, bytes := m.args(p)
			if size += bytes; size > maxBytes && n > 0 {
				break
			}
			text := s.stmt.save
			if m.Record == nil {
				text = s.stmt.saveState
			}
			c.stmts = append(c.stmts, statement{text, args})
			if m.Offset >= 0 { // all replays are read
				c.lowest = min(c.lowest, m.Offset)
			}
		}
		if n == 1 && size > maxBytes && messages[0].Record != nil {
			c.text, c.one = s.stmt.writeOne, c.stmts[0].args
		}
		if err := s.write(ctx, p, pt, epoch, &c); err != nil {
			return fmt.Errorf("store %d messages of partition %s from offset %d: %w", len(messages), p, messages[0].Offset, err)
		}
		messages = messages[n:]
	}
	return nil
}

// args returns the arguments of statements.save, or of saveState without a record, and
// about their size.
func (m *Stored) args(p Partition) (args []any, bytes int) {
	text := cut(m.Error)
	args = []any{[]byte(m.Key), m.State, m.Attempts, orNull(m.NextAt), orNull(m.FirstAt), text, idOrNull(m.DeadLetter), idOrNull(m.Edited)}
	bytes = rowBytes + len(p.Subscription) + len(p.Topic) + len(m.Key) + len(text)
	if r := m.Record; r != nil {
		headers := encodeHeaders(r.Headers)
		args = append(args, r.Timestamp.UnixMilli(), r.Key, r.Value, headers)
		bytes += len(r.Key) + len(r.Value) + len(headers)
	}
	return append(args, p.args(m.Offset)...), bytes
}

// idOrNull returns an id, or null for the zero id.
func idOrNull(id gocql.UUID) any {
	if id == (gocql.UUID{}) {
		return nil
	}
	return id
}

func cut(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxError)], "\uFFFD")
}

// Remove removes stored messages, in chunks as Save does. Removing again is harmless.
func (s *Store) Remove(ctx context.Context, p Partition, epoch int64, offsets []int64) error {
	pt := s.partition(p)
	for len(offsets) > 0 {
		c := change{lowest: math.MaxInt64}
		n := min(len(offsets), maxRows)
		for _, o := range offsets[:n] {
			c.stmts = append(c.stmts, statement{s.stmt.remove, p.args(o)})
		}
		if err := s.write(ctx, p, pt, epoch, &c); err != nil {
			return fmt.Errorf("remove %d stored messages of partition %s: %w", len(offsets), p, err)
		}
		offsets = offsets[n:]
	}
	return nil
}

// RemoveAll removes all stored messages of a partition. After an error some of them may be
// left; call it again.
func (s *Store) RemoveAll(ctx context.Context, p Partition, epoch int64) error {
	// Conditional batches cannot delete ranges of rows.
	stored, err := s.Messages(ctx, p)
	if err != nil {
		return err
	}
	offsets := make([]int64, len(stored))
	for i := range stored {
		offsets[i] = stored[i].Offset
	}
	return s.Remove(ctx, p, epoch, offsets)
}

// trimStep is the least distance of two values of first_offset.
const trimStep = 1000

// Trim sets the offset at which Messages begins, so that it passes over the rows that were
// deleted before it. The caller knows that no stored message is below first. Trim writes
// only if first is 1,000 above the last value; call it as often as messages are removed.
func (s *Store) Trim(ctx context.Context, p Partition, epoch, first int64) error {
	pt := s.partition(p)
	pt.mu.Lock()
	err := s.ensureKnownLocked(ctx, p, pt)
	far := first >= pt.mu.first+trimStep
	pt.mu.Unlock()
	if err == nil && far {
		err = s.write(ctx, p, pt, epoch, &change{lowest: math.MaxInt64, first: first})
	}
	if err != nil {
		return fmt.Errorf("trim the stored messages of partition %s: %w", p, err)
	}
	return nil
}
