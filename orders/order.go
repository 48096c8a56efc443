package orders

import (
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

// Order is the state of an order after its last event. An Order is a value; do
// not change its slices and pointers after passing it on.
type Order struct {
	ID gocql.UUID `json:"id" format:"uuid" doc:"The order's id"`
	// Version counts the changes: 1 when created. It is the seq of the last event
	// of the order.
	Version int64  `json:"version" doc:"Counts the changes, 1 when created"`
	Status  Status `json:"status" enum:"placed,confirmed,shipped,cancelled"`

	Invoice    string    `json:"invoice,omitempty" doc:"The caller's own reference"`
	CustomerID *string   `json:"customer_id" doc:"Null for a guest"`
	Country    string    `json:"country"`
	Address    *Address  `json:"address,omitempty" doc:"Delivery address, if any"`
	PlacedAt   time.Time `json:"placed_at"`
	Currency   string    `json:"currency" doc:"ISO 4217"`
	Lines      Lines     `json:"lines"`
	Total      Money     `json:"total" doc:"Sum of quantity times unit price"`

	CreatedAt    time.Time  `json:"created_at"`
	UpdatedAt    time.Time  `json:"updated_at"`
	ConfirmedAt  *time.Time `json:"confirmed_at,omitempty"`
	ShippedAt    *time.Time `json:"shipped_at,omitempty"`
	Carrier      string     `json:"carrier,omitempty" doc:"Carrier, if given when the order was shipped"`
	Tracking     string     `json:"tracking,omitempty" doc:"Tracking number of the carrier, if given when the order was shipped"`
	CancelledAt  *time.Time `json:"cancelled_at,omitempty"`
	CreditNote   string     `json:"credit_note,omitempty"`
	CancelReason string     `json:"cancel_reason,omitempty"`

	// EventID is the event that made this version. The JSON form excludes it; the
	// envelope of the event contains it.
	EventID gocql.UUID `json:"-"`
}

// Line is one item of an order.
type Line struct {
	SKU         string `json:"sku"`
	Description string `json:"description,omitempty"`
	Quantity    int    `json:"quantity"`
	UnitPrice   Money  `json:"unit_price"`
}

// event returns the event that contains o.
func (o *Order) event(eventType string, headers map[string]string) (outbox.Event, error) {
	payload, err := o.encode()
	if err != nil {
		return outbox.Event{}, err
	}
	return outbox.Event{
		ID:            outbox.IDFromUUID(o.EventID),
		AggregateID:   outbox.IDFromUUID(o.ID),
		Sequence:      o.Version,
		AggregateType: AggregateType,
		Type:          eventType,
		Payload:       payload,
		ContentType:   outbox.DefaultContentType,
		Headers:       headers,
		CreatedAt:     o.UpdatedAt,
	}, nil
}

// fromEvent is the reverse: the order after event e.
func fromEvent(e *outbox.Event) (Order, error) {
	var o Order
	if err := json.Unmarshal(e.Payload, &o); err != nil {
		return Order{}, fmt.Errorf("decode event %s of order %s: %w", e.ID, e.AggregateID, err)
	}
	if o.ID != e.AggregateID.UUID() || o.Version != e.Sequence {
		return Order{}, fmt.Errorf("event %s contains version %d of order %s, but is stored at seq %d of %s",
			e.ID, o.Version, o.ID, e.Sequence, e.AggregateID)
	}
	o.EventID = e.ID.UUID()
	return o, nil
}

// writeTime is the write timestamp of the current version in the orders table,
// in microseconds. It depends on the order alone, so every process that applies
// a version writes the same cells. It increases with the version, so an older
// version never overwrites a newer one.
func (o *Order) writeTime() int64 { return o.CreatedAt.UnixMicro() + o.Version - 1 }

// millis truncates t to the precision of the database.
func millis(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
