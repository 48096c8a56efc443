package delivery

import (
	"strconv"
	"strings"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/kafkarecord"
)

// State is the state of a delivery.
type State string

// The states. A delivery without attempts has no row: it is part of the lag of
// its rule.
const (
	// Pending: an attempt failed and will be retried, or a repeat is requested.
	Pending State = "pending"
	// Delivered: the plugin took the event.
	Delivered State = "delivered"
	// Failed: all attempts failed, or the last error was permanent.
	Failed State = "failed"
)

// States contains all states.
var States = []State{Pending, Failed, Delivered}

// Delivery is one event at one rule.
type Delivery struct {
	ID   gocql.UUID
	Rule string
	// Plugin is the name of the target or plugin of the rule.
	Plugin string
	State  State
	// Attempts counts the attempts since the delivery began or was last repeated.
	Attempts int
	// Error is that of the last attempt that failed, also when a later one did not.
	Error string
	// CreatedAt is the time of the first write of the row, ChangedAt that of the
	// last.
	CreatedAt, ChangedAt time.Time
	// NextAttempt is the time of the next retry; zero for as soon as possible.
	NextAttempt time.Time
	// Repeats counts the requested repeats; RepeatedBy and Reason are the ones of the
	// last one.
	Repeats    int
	RepeatedBy string
	Reason     string

	// The record in its topic.
	Topic       string
	Partition   int32
	Offset      int64
	RecordAt    time.Time
	EventID     string
	EventType   string
	AggregateID string
	// Tries are the last attempts, oldest first; see Tried. Lists omit them and
	// the record's Key, Value and Headers.
	Tries []Try

	Key     []byte
	Value   []byte
	Headers map[string][]byte

	writtenAt int64 // µs; the next write's timestamp is greater
}

// namespace is that of the ids of deliveries.
var namespace = gocql.UUID{0x9b, 0x21, 0x5d, 0xd0, 0x6f, 0x3a, 0x4e, 0x52, 0x8c, 0x0e, 0x4d, 0x8e, 0x26, 0x7b, 0x51, 0xaa}

// NewID returns the id of an event's delivery by a rule. Sources may have the
// same sequential event ids, so an id that is not a UUID is combined with its
// source. An event without an id is identified by its position.
func NewID(rule string, e *kafkarecord.Event) gocql.UUID {
	switch {
	case e.ID != "" && (e.Source == "" || outbox.IDOf(e.ID).String() == e.ID):
		return outbox.NameID(namespace, rule, "event", e.ID)
	case e.ID != "":
		return outbox.NameID(namespace, rule, "event of", e.Source, e.ID)
	}
	return outbox.NameID(namespace, rule, "record", e.Topic, strconv.Itoa(int(e.Partition)), strconv.FormatInt(e.Offset, 10))
}

// New returns a new delivery of an event by a rule to a plugin.
func New(rule, plugin string, r *kgo.Record, e *kafkarecord.Event) *Delivery {
	d := &Delivery{
		ID: NewID(rule, e), Rule: rule, Plugin: plugin, State: Pending, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, RecordAt: e.At,
		EventID: text(e.ID), EventType: text(e.Type), AggregateID: text(e.AggregateID), Key: r.Key, Value: r.Value,
	}
	if len(r.Headers) > 0 {
		d.Headers = make(map[string][]byte, len(r.Headers))
		for _, h := range r.Headers {
			d.Headers[text(h.Key)] = h.Value
		}
	}
	return d
}

// maxText bounds an id or name of a record, in bytes: it may become a key in
// the database, which allows 64 KiB.
const maxText = 1000

// text converts the text of a producer to a form that the database accepts: a
// delivery that cannot be saved would block its rule.
func text(s string) string {
	if s = strings.ToValidUTF8(s, "\uFFFD"); len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "")
	}
	return s
}

// Record returns the original record, except for header names that are long or
// not UTF-8, and for repeated headers, of which the last is kept.
func (d *Delivery) Record() *kgo.Record {
	r := &kgo.Record{Topic: d.Topic, Partition: d.Partition, Offset: d.Offset, Timestamp: d.RecordAt, Key: d.Key, Value: d.Value}
	for k, v := range d.Headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: k, Value: v})
	}
	return r
}
