// Package outbox defines the event that a service stores beside its own rows
// and the relay publishes.
//
// A service adds the event to the gocql batch that writes its own table, so
// that both are stored or neither is; see Append.
package outbox

import "time"

// MessageAggregate is the AggregateType of a message submitted for a given
// topic: an aggregate of one event, whose Type is the topic.
const MessageAggregate = "message"

// Event is one row of the outbox table: an event of one aggregate. An Event is
// a value; do not change its slices and map after passing it on.
type Event struct {
	// ID identifies the event in the outbox, in the topic (header ce_id) and as a
	// dead letter: NewID, or NameID where a retry must write the same event.
	ID ID
	// AggregateID is the aggregate: the partition key of the outbox table and, as text, the
	// record key. Aggregates of different types with equal ids are one aggregate.
	AggregateID ID
	// Sequence counts the events of one aggregate: 1, 2, 3 … without gaps. It is
	// 0 for events of a table without sequence numbers, see Mapping.
	Sequence int64
	// AggregateType is the type of the aggregate, such as "order".
	AggregateType string
	// Type is the type of the event, such as "OrderCreated"; it determines the
	// topic. For a MessageAggregate it is the topic.
	Type string
	// Payload is published unchanged. Nil is a record without a value, which deletes the key
	// where the topic is compacted; an empty one is an empty value.
	Payload []byte
	// ContentType is the payload's media type; empty means application/json.
	ContentType string
	// Headers are published as record headers; traceparent travels here.
	Headers map[string]string
	// CreatedAt is the time of the event, UTC, with millisecond precision. It is
	// zero in a row without one; the relay then uses the write time.
	CreatedAt time.Time
	// DeliverAt is the earliest time of publication, at most MaxDelay after the write of the
	// row; zero means immediately.
	DeliverAt time.Time
}
