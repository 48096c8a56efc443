package orders

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// AggregateType is the aggregate type of order events.
const AggregateType = "order"

// Event types. Each carries the whole order, as it was after the event, as JSON.
const (
	EventCreated   = "OrderCreated"
	EventUpdated   = "OrderUpdated"
	EventCancelled = "OrderCancelled"
)

// Order is an order as its last event left it. An Order is a value; its slices
// and pointers must not be changed after it was handed on.
type Order struct {
	ID gocql.UUID `json:"id" format:"uuid" doc:"The order's id"`
	// Version counts the changes: 1 when created. It is the seq of the event
	// that made the order what it is.
	Version int64  `json:"version" doc:"Counts the changes, 1 when created"`
	Status  Status `json:"status" enum:"placed,confirmed,shipped,cancelled"`

	Invoice    string    `json:"invoice,omitempty" doc:"The caller's own reference"`
	CustomerID *string   `json:"customer_id" doc:"Null for a guest"`
	Country    string    `json:"country"`
	Address    *Address  `json:"address,omitempty" doc:"Where the order goes, if that was said"`
	PlacedAt   time.Time `json:"placed_at"`
	Currency   string    `json:"currency" doc:"ISO 4217"`
	Lines      Lines     `json:"lines"`
	Total      Money     `json:"total" doc:"Sum of quantity times unit price"`

	CreatedAt    time.Time  `json:"created_at"`
	UpdatedAt    time.Time  `json:"updated_at"`
	ConfirmedAt  *time.Time `json:"confirmed_at,omitempty"`
	ShippedAt    *time.Time `json:"shipped_at,omitempty"`
	Carrier      string     `json:"carrier,omitempty" doc:"Who brings it, as said when it was shipped"`
	Tracking     string     `json:"tracking,omitempty" doc:"The carrier's number, as said when it was shipped"`
	CancelledAt  *time.Time `json:"cancelled_at,omitempty"`
	CreditNote   string     `json:"credit_note,omitempty"`
	CancelReason string     `json:"cancel_reason,omitempty"`

	// EventID is the event that made this version. It is not part of the JSON
	// form, where it stands beside the order.
	EventID gocql.UUID `json:"-"`
}

// Line is one position of an order.
type Line struct {
	SKU         string `json:"sku"`
	Description string `json:"description,omitempty"`
	Quantity    int    `json:"quantity"`
	UnitPrice   Money  `json:"unit_price"`
}

// event returns the event that made o what it is.
func (o *Order) event(eventType string, headers map[string]string) (outbox.Event, error) {
	var payload bytes.Buffer
	enc := json.NewEncoder(&payload)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(o); err != nil {
		return outbox.Event{}, fmt.Errorf("encode order %s: %w", o.ID, err)
	}
	return outbox.Event{
		ID:            o.EventID,
		AggregateID:   o.ID,
		Sequence:      o.Version,
		AggregateType: AggregateType,
		Type:          eventType,
		Payload:       bytes.TrimSuffix(payload.Bytes(), []byte("\n")),
		ContentType:   outbox.DefaultContentType,
		Headers:       headers,
		CreatedAt:     o.UpdatedAt,
	}, nil
}

// fromEvent is the reverse: the order as event e left it.
func fromEvent(e *outbox.Event) (Order, error) {
	var o Order
	if err := json.Unmarshal(e.Payload, &o); err != nil {
		return Order{}, fmt.Errorf("decode event %s of order %s: %w", e.ID, e.AggregateID, err)
	}
	if o.ID != e.AggregateID || o.Version != e.Sequence {
		return Order{}, fmt.Errorf("event %s holds version %d of order %s, but stands at seq %d of %s",
			e.ID, o.Version, o.ID, e.Sequence, e.AggregateID)
	}
	o.EventID = e.ID
	return o, nil
}

// writeTime is the write timestamp of version v in the orders table, in
// microseconds. It depends on nothing but the order, so whoever applies a
// version, once or twice, early or late, writes the same cells; and it grows
// with v, so an older version never covers a newer one.
func (o *Order) writeTime() int64 { return o.CreatedAt.UnixMicro() + o.Version - 1 }

// millis cuts t to what the database keeps.
func millis(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
