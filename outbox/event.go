// Package outbox is the event that a service stores beside its own rows and
// the relay carries to its topic.
//
// A service adds the event to the gocql batch that writes its own table, so
// that both are stored or neither is; see Append.
package outbox

import (
	"time"

	"github.com/gocql/gocql"
)

// MessageAggregate is the AggregateType of a message that somebody handed in for
// a topic of their choice: an aggregate of one event, whose Type is the topic.
const MessageAggregate = "message"

// Event is one row of the outbox table: something that happened to one
// aggregate. An Event is a value; its slices and map must not be changed after
// it was handed on.
type Event struct {
	// ID identifies the event everywhere: outbox, topic (header ce_id), dead letters.
	ID gocql.UUID
	// IDText is the event's id in a table that keeps it as text or as a number;
	// ID is then IDOf of it. Empty where the id is a UUID. What is published is
	// IDString.
	IDText string
	// EditOf is the id, as it would be published, of the event in the outbox whose
	// place this one takes: somebody edited it when it was a dead letter. Empty in
	// every event that was not edited; no outbox table keeps it.
	EditOf string
	// AggregateID is the aggregate, the partition key of the outbox table and, in its text form, the record key.
	AggregateID gocql.UUID
	// AggregateText is the aggregate's id in a table that keeps it as text or as
	// a number; AggregateID is then IDOf of it. Empty where the id is a UUID. What
	// is published is AggregateString.
	AggregateText string
	// Sequence counts the events of one aggregate: 1, 2, 3 … without gaps. It is
	// 0 for every event of a table without numbers, see Mapping.
	Sequence int64
	// AggregateType is what the aggregate is, such as "order".
	AggregateType string
	// Type is what happened, such as "OrderCreated"; it chooses the topic. Of a
	// MessageAggregate it is the topic.
	Type string
	// Payload is published as it is.
	Payload []byte
	// ContentType is the payload's media type; empty means application/json.
	ContentType string
	// Headers are published as record headers; traceparent travels here.
	Headers map[string]string
	// CreatedAt is when the event happened, UTC, to the millisecond. It is zero in
	// a row that does not say; the relay then takes the time of the write.
	CreatedAt time.Time
	// DeliverAt is when the event may be published at the earliest; zero means at once.
	DeliverAt time.Time
}
