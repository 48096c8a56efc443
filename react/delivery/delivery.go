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

// State is where a delivery stands.
type State string

// The states. What was not attempted yet has no row: it is the rule's lag.
const (
	// Pending: an attempt failed and another follows, or somebody asked for one.
	Pending State = "pending"
	// Delivered: the plugin took the event.
	Delivered State = "delivered"
	// Failed: all attempts failed, or the last error was permanent.
	Failed State = "failed"
)

// States are all of them.
var States = []State{Pending, Failed, Delivered}

// Delivery is one event at one rule.
type Delivery struct {
	ID   gocql.UUID
	Rule string
	// Plugin is the target or plugin that the rule leads to, by its name.
	Plugin string
	State  State
	// Attempts are those since the delivery began, or since it was last repeated.
	Attempts int
	// Error is that of the last attempt that failed, also when a later one did not.
	Error string
	// CreatedAt is when the first row was written, ChangedAt the last.
	CreatedAt, ChangedAt time.Time
	// NextAttempt is when a pending one is tried again; zero for as soon as possible.
	NextAttempt time.Time
	// Repeats counts how often somebody asked for it again; RepeatedBy and Reason
	// are of the last time.
	Repeats    int
	RepeatedBy string
	Reason     string

	// The record, as it stands in its topic.
	Topic       string
	Partition   int32
	Offset      int64
	RecordAt    time.Time
	EventID     string
	EventType   string
	AggregateID string
	// Tries are the last attempts, the oldest first; see Tried. They and the record's
	// Key, Value and Headers are absent in lists.
	Tries []Try

	Key     []byte
	Value   []byte
	Headers map[string][]byte

	writtenAt int64 // µs; the next write's timestamp is greater
}

// namespace is that of the ids of deliveries.
var namespace = gocql.UUID{0x9b, 0x21, 0x5d, 0xd0, 0x6f, 0x3a, 0x4e, 0x52, 0x8c, 0x0e, 0x4d, 0x8e, 0x26, 0x7b, 0x51, 0xaa}

// NewID is the id of an event's delivery by a rule. Two tables may number their
// events from 1, so an id that is no UUID counts together with its source. An event
// without an id is told from others by its place.
func NewID(rule string, e *kafkarecord.Event) gocql.UUID {
	switch {
	case e.ID != "" && (e.Source == "" || outbox.IDOf(e.ID).String() == e.ID):
		return outbox.NameID(namespace, rule, "event", e.ID)
	case e.ID != "":
		return outbox.NameID(namespace, rule, "event of", e.Source, e.ID)
	}
	return outbox.NameID(namespace, rule, "record", e.Topic, strconv.Itoa(int(e.Partition)), strconv.FormatInt(e.Offset, 10))
}

// New is a delivery that has not begun, of an event by a rule to a plugin.
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

// maxText bounds an id or a name of a record, in bytes: it may be a key in the
// database, which takes 64 KiB of those.
const maxText = 1000

// text is what a producer wrote, as the database takes it: a delivery that cannot be
// saved would keep its rule from going on.
func text(s string) string {
	if s = strings.ToValidUTF8(s, "\uFFFD"); len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "")
	}
	return s
}

// Record is the record as it was, but for names of headers that are long or not
// UTF-8, and headers of the same name, of which the last is left.
func (d *Delivery) Record() *kgo.Record {
	r := &kgo.Record{Topic: d.Topic, Partition: d.Partition, Offset: d.Offset, Timestamp: d.RecordAt, Key: d.Key, Value: d.Value}
	for k, v := range d.Headers {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: k, Value: v})
	}
	return r
}
