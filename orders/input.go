package orders

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of an order. An order at all of these bounds fits one batch.
const (
	MaxLines       = 500
	MaxQuantity    = 1_000_000
	MaxReference   = 64  // characters of invoice, customer_id, credit_note and sku
	MaxCountry     = 100 // characters
	MaxDescription = 200 // characters of a line's description and of a reason
	MaxKey         = 255 // characters of an Idempotency-Key
)

// NewOrder is the input of Create.
type NewOrder struct {
	// Invoice is the caller's own reference; optional, not unique.
	Invoice string `json:"invoice,omitempty" nullable:"true" maxLength:"64" doc:"The caller's own reference; optional, need not be unique"`
	// CustomerID is nil for a guest.
	CustomerID *string `json:"customer_id,omitempty" nullable:"true" minLength:"1" maxLength:"64" doc:"Null or absent for a guest"`
	Country    string  `json:"country" minLength:"1" maxLength:"100"`
	// Address is the delivery address; optional.
	Address *Address `json:"address,omitempty"`
	// PlacedAt defaults to now. It is stored in UTC with millisecond precision.
	PlacedAt *time.Time `json:"placed_at,omitempty" nullable:"true" doc:"Default: now"`
	// Currency is an ISO 4217 code in upper case.
	Currency string    `json:"currency" pattern:"^[A-Z]{3}$" doc:"ISO 4217"`
	Lines    []NewLine `json:"lines" minItems:"1" maxItems:"500" nullable:"false"`
}

// NewLine is one position of a NewOrder.
type NewLine struct {
	SKU         string `json:"sku" minLength:"1" maxLength:"64"`
	Description string `json:"description,omitempty" nullable:"true" maxLength:"200"`
	Quantity    int    `json:"quantity" minimum:"1" maximum:"1000000"`
	// UnitPrice is a plain decimal number, such as 3.39.
	UnitPrice Price `json:"unit_price"`
}

// Cancellation is the input of Cancel.
type Cancellation struct {
	// CreditNote is the caller's own reference; optional.
	CreditNote string `json:"credit_note,omitempty" nullable:"true" maxLength:"64" doc:"The caller's own reference"`
	Reason     string `json:"reason,omitempty" nullable:"true" maxLength:"200"`
	// CancelledAt defaults to now.
	CancelledAt *time.Time `json:"cancelled_at,omitempty" nullable:"true" doc:"Default: now"`
}

// Validate returns nil or an *InvalidError that names every bad field.
func (n *NewOrder) Validate() error {
	var bad InvalidError
	checkText(&bad, "invoice", n.Invoice, 0, MaxReference)
	if n.CustomerID != nil {
		checkText(&bad, "customer_id", *n.CustomerID, 1, MaxReference)
	}
	checkText(&bad, "country", n.Country, 1, MaxCountry)
	checkTime(&bad, "placed_at", n.PlacedAt)
	if n.Address != nil {
		n.Address.validate(&bad, "address.")
	}
	if _, ok := minorUnits(n.Currency); !ok {
		bad.Add("currency", "must be the ISO 4217 code of a currency in use, such as GBP")
	}
	validateLines(&bad, n.Lines, n.Currency)
	return bad.OrNil()
}

// validateLines also checks prices against currency, if that is valid.
func validateLines(bad *InvalidError, lines []NewLine, currency string) {
	if l := len(lines); l < 1 || l > MaxLines {
		bad.Add("lines", fmt.Sprintf("must have from 1 to %d lines", MaxLines))
	}
	for i := range lines[:min(len(lines), MaxLines)] {
		var own InvalidError
		lines[i].validate(&own, currency)
		for _, f := range own.Fields {
			bad.Add(fmt.Sprintf("lines[%d].%s", i, f.Field), f.Problem)
		}
	}
}

func (l *NewLine) validate(bad *InvalidError, currency string) {
	checkText(bad, "sku", l.SKU, 1, MaxReference)
	checkText(bad, "description", l.Description, 0, MaxDescription)
	if l.Quantity < 1 || l.Quantity > MaxQuantity {
		bad.Add("quantity", fmt.Sprintf("must be from 1 to %d", MaxQuantity))
	}
	price, err := ParseMoney(string(l.UnitPrice))
	if err != nil {
		bad.Add("unit_price", err.Error())
		return
	}
	if units, ok := minorUnits(currency); ok {
		if _, ok := price.Fixed(units); !ok {
			bad.Add("unit_price", fmt.Sprintf("must have at most %d decimal places in %s", units, currency))
		}
	}
}

// Validate returns nil or an *InvalidError that names every bad field.
func (c *Cancellation) Validate() error {
	var bad InvalidError
	checkText(&bad, "credit_note", c.CreditNote, 0, MaxReference)
	checkText(&bad, "reason", c.Reason, 0, MaxDescription)
	checkTime(&bad, "cancelled_at", c.CancelledAt)
	return bad.OrNil()
}

func checkText(bad *InvalidError, field, v string, least, most int) {
	switch n := utf8.RuneCountInString(v); {
	case !utf8.ValidString(v) || strings.ContainsFunc(v, unicode.IsControl):
		bad.Add(field, "must be UTF-8 text without control characters")
	case n < least:
		bad.Add(field, "must not be empty")
	case n > most:
		bad.Add(field, fmt.Sprintf("must have at most %d characters, has %d", most, n))
	case least > 0 && strings.TrimSpace(v) == "":
		bad.Add(field, "must not be blank")
	}
}

func checkTime(bad *InvalidError, field string, t *time.Time) {
	// Outside of these years neither JSON nor the record header can write it.
	if t != nil && (t.UTC().Year() < 1 || t.UTC().Year() > 9999) {
		bad.Add(field, "must be in the years 1 to 9999")
	}
}

// validateKey checks an Idempotency-Key; an empty key is valid.
func validateKey(key string) error {
	if len(key) > MaxKey || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return &InvalidError{Fields: []FieldError{{
			Field:   "header.Idempotency-Key",
			Problem: fmt.Sprintf("must have at most %d printable ASCII characters and no space", MaxKey),
		}}}
	}
	return nil
}

// build returns the order of a valid NewOrder with the given ids and times.
func (n *NewOrder) build(ids identity) (Order, error) {
	o := Order{
		ID: ids.orderID, EventID: ids.eventID, Version: 1, Status: StatusPlaced,
		Invoice: n.Invoice, CustomerID: n.CustomerID, Country: n.Country, Currency: n.Currency,
		Address: n.Address, PlacedAt: ids.createdAt, CreatedAt: ids.createdAt, UpdatedAt: ids.createdAt,
	}
	if n.PlacedAt != nil {
		o.PlacedAt = millis(*n.PlacedAt)
	}
	return o, o.setLines(n.Lines)
}

// setLines sets the lines of o from valid ones, and their total. Amounts have
// the decimal places of the currency.
func (o *Order) setLines(lines []NewLine) error {
	units, ok := minorUnits(o.Currency)
	o.Lines, o.Total = make(Lines, len(lines)), Money{}
	for i, l := range lines {
		price, err := ParseMoney(string(l.UnitPrice))
		if err != nil {
			return err
		}
		if ok {
			price, _ = price.Fixed(units)
		}
		o.Lines[i] = Line{SKU: l.SKU, Description: l.Description, Quantity: l.Quantity, UnitPrice: price}
		o.Total = o.Total.Add(price.Times(l.Quantity))
	}
	return nil
}
