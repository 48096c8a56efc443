package client

import (
	"net/url"
	"strconv"
	"time"
)

// Status is the state of an order.
type Status string

// The statuses of an order.
const (
	Placed    Status = "placed"
	Confirmed Status = "confirmed"
	Shipped   Status = "shipped"
	Cancelled Status = "cancelled"
)

// Order is an order. Amounts are decimal numbers as text.
type Order struct {
	ID           string     `json:"id"`
	Version      int64      `json:"version"`
	Status       Status     `json:"status"`
	Invoice      string     `json:"invoice"`
	CustomerID   *string    `json:"customer_id"`
	Country      string     `json:"country"`
	Address      *Address   `json:"address"`
	PlacedAt     time.Time  `json:"placed_at"`
	Currency     string     `json:"currency"`
	Lines        []Line     `json:"lines"`
	Total        string     `json:"total"`
	CreatedAt    time.Time  `json:"created_at"`
	UpdatedAt    time.Time  `json:"updated_at"`
	ConfirmedAt  *time.Time `json:"confirmed_at"`
	ShippedAt    *time.Time `json:"shipped_at"`
	Carrier      string     `json:"carrier"`
	Tracking     string     `json:"tracking"`
	CancelledAt  *time.Time `json:"cancelled_at"`
	CreditNote   string     `json:"credit_note"`
	CancelReason string     `json:"cancel_reason"`
}

// Line is an item of an order.
type Line struct {
	SKU         string `json:"sku"`
	Description string `json:"description,omitempty"`
	Quantity    int    `json:"quantity"`
	// UnitPrice is a plain decimal number, such as 3.39.
	UnitPrice string `json:"unit_price"`
}

// Address is a delivery address.
type Address struct {
	Name     string `json:"name"`
	Street   string `json:"street"`
	City     string `json:"city"`
	Region   string `json:"region,omitempty"`
	Postcode string `json:"postcode,omitempty"`
}

// NewOrder is an order to store. CustomerID is nil for a guest.
type NewOrder struct {
	Invoice    string     `json:"invoice,omitempty"`
	CustomerID *string    `json:"customer_id,omitempty"`
	Country    string     `json:"country"`
	Address    *Address   `json:"address,omitempty"`
	PlacedAt   *time.Time `json:"placed_at,omitempty"`
	Currency   string     `json:"currency"`
	Lines      []Line     `json:"lines"`
}

// Update is the input of Update; nil fields keep their values.
type Update struct {
	Country *string  `json:"country,omitempty"`
	Address *Address `json:"address,omitempty"`
	Lines   []Line   `json:"lines,omitempty"`
}

// Shipment is the input of Ship.
type Shipment struct {
	Carrier   string     `json:"carrier,omitempty"`
	Tracking  string     `json:"tracking,omitempty"`
	ShippedAt *time.Time `json:"shipped_at,omitempty"`
}

// Cancellation is the input of Cancel.
type Cancellation struct {
	CreditNote  string     `json:"credit_note,omitempty"`
	Reason      string     `json:"reason,omitempty"`
	CancelledAt *time.Time `json:"cancelled_at,omitempty"`
}

// ListQuery selects orders. CustomerID is required; Since is inclusive, Until
// exclusive; Limit is at most 100, zero means 50.
type ListQuery struct {
	CustomerID   string
	Since, Until time.Time
	Limit        int
	Cursor       string
}

func (q *ListQuery) values() url.Values {
	v := url.Values{"customer_id": {q.CustomerID}}
	if !q.Since.IsZero() {
		v.Set("since", q.Since.Format(time.RFC3339Nano))
	}
	if !q.Until.IsZero() {
		v.Set("until", q.Until.Format(time.RFC3339Nano))
	}
	if q.Limit != 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	if q.Cursor != "" {
		v.Set("cursor", q.Cursor)
	}
	return v
}

// Page is a part of a list.
type Page struct {
	Orders []Summary `json:"orders"`
	// Next is the cursor of the next page; empty after the last.
	Next string `json:"next"`
}

// Summary is an order in a list.
type Summary struct {
	ID        string    `json:"id"`
	Version   int64     `json:"version"`
	Status    Status    `json:"status"`
	Invoice   string    `json:"invoice"`
	Country   string    `json:"country"`
	PlacedAt  time.Time `json:"placed_at"`
	Currency  string    `json:"currency"`
	Total     string    `json:"total"`
	Lines     int       `json:"lines"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}
