package schedule

import (
	"fmt"
	"maps"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// MaxAhead is the maximum delay of a message: a year and a day.
const MaxAhead = 366 * 24 * time.Hour

// State is the state of a scheduled message.
type State string

// The states of a scheduled message.
const (
	// Waiting: the message is not due yet.
	Waiting State = "scheduled"
	// Released: it is being written to the outbox and can no longer be cancelled.
	Released State = "released"
	// Cancelled: it is never published.
	Cancelled State = "cancelled"
)

// Message is one that waits, or waited, for its time. All times are UTC, to the millisecond.
type Message struct {
	ID    gocql.UUID
	State State
	// Topic is the topic, Key the record key; an empty key means the id.
	Topic, Key string
	// Payload is nil for a tombstone: a record without a value.
	Payload     []byte
	ContentType string
	Headers     map[string]string
	// Client is the submitter.
	Client               string
	CreatedAt, DeliverAt time.Time
	// ChangedAt is the time of the cancellation or release; zero before.
	ChangedAt time.Time

	storedFor time.Time // the time of its slot, if Hasten has changed DeliverAt; otherwise zero
	releaseAt int64     // write time of its outbox row, in microseconds, once released
}

// slot returns the slot that contains the state of the message: that of the time
// for which it was stored.
func (m *Message) slot() slot {
	at := m.DeliverAt
	if !m.storedFor.IsZero() {
		at = m.storedFor
	}
	return m.slotAt(at)
}

// slotAt returns a slot that refers to the message at a time.
func (m *Message) slotAt(at time.Time) slot {
	return slot{bucket: bucketAt(at), at: at, id: m.ID, topic: m.Topic}
}

// slots returns the slots of a message: one, or two after Hasten.
func (m *Message) slots() []slot {
	if m.storedFor.IsZero() {
		return []slot{m.slot()}
	}
	return []slot{m.slot(), m.slotAt(m.DeliverAt)}
}

// dueAt returns the column due_at of the slot: null until Hasten.
func (m *Message) dueAt() any {
	if m.storedFor.IsZero() {
		return nil
	}
	return m.DeliverAt.UnixMilli()
}

// Event returns the event of the message: an aggregate of its own, with the id
// of the event.
func (m *Message) Event() outbox.Event {
	headers := m.Headers
	if m.Key != "" {
		headers = make(map[string]string, len(m.Headers)+1)
		maps.Copy(headers, m.Headers)
		headers[outbox.HeaderPartitionKey] = m.Key
	}
	return outbox.Event{
		ID: outbox.IDFromUUID(m.ID), AggregateID: outbox.IDFromUUID(m.ID), Sequence: 1, AggregateType: outbox.MessageAggregate, Type: m.Topic,
		Payload: m.Payload, ContentType: m.ContentType, Headers: headers, CreatedAt: m.CreatedAt, DeliverAt: m.DeliverAt,
	}
}

const (
	shards     = 8
	bucketSize = time.Minute
)

func shardFor(id gocql.UUID) int { return int(id[15]) % shards }

func bucketAt(t time.Time) time.Time { return t.UTC().Truncate(bucketSize) }

func monthAt(t time.Time) int { return t.UTC().Year()*100 + int(t.UTC().Month()) }

// months are the months that from to until touch, in order.
func months(from, until time.Time) []int {
	from, until = from.UTC(), until.UTC()
	var out []int
	for m := time.Date(from.Year(), from.Month(), 1, 0, 0, 0, 0, time.UTC); !m.After(until); m = m.AddDate(0, 1, 0) {
		out = append(out, monthAt(m))
	}
	return out
}

// TooFarError reports that the due time is too far in the future.
type TooFarError struct{ DeliverAt time.Time }

// Error names the time and the bound.
func (e *TooFarError) Error() string {
	return fmt.Sprintf("deliver at %s: a message waits for at most %d days", e.DeliverAt.Format(time.RFC3339), MaxAhead/(24*time.Hour))
}
