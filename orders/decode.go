package orders

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
)

// decode reads a request body. Once its form is known to be sane, a good one
// takes a single strict pass into T; only a bad one is taken apart to name all
// that is wrong with it.
//
// The error is a *syntaxError, or an *InvalidError with every bad field: those
// of a wrong type, unknown ones and those that valid refuses.
func decode[T any](body []byte, explain func(map[string]json.RawMessage, *InvalidError) T, valid func(*T) error) (T, error) {
	if err := checkForm(body); err != nil {
		var none T
		return none, err
	}
	return decodeChecked(body, explain, valid)
}

// decodeChecked is decode for a body that checkForm has passed.
func decodeChecked[T any](body []byte, explain func(map[string]json.RawMessage, *InvalidError) T, valid func(*T) error) (T, error) {
	var v T
	// Names count as they are written: encoding/json would take "Country" for
	// "country", and of both in one body the last.
	err := jsonv2.Unmarshal(body, &v, jsonv2.RejectUnknownMembers(true))
	if err == nil && !isNull(body) {
		return v, valid(&v)
	}
	var bad InvalidError
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil || fields == nil {
		bad.add("", "must be a JSON object", nil)
		return v, &bad
	}
	v = explain(fields, &bad)
	bad.merge(valid(&v))
	if len(bad.Fields) == 0 { // the strict pass knew better
		bad.add("", clip(err.Error()), nil)
	}
	return v, &bad
}

func isNull(body []byte) bool { return string(bytes.TrimSpace(body)) == "null" }

// merge adds the fields of err that e has not named yet: a value of the wrong
// type is not also too short.
func (e *InvalidError) merge(err error) {
	var other *InvalidError
	if !errors.As(err, &other) {
		return
	}
	for _, f := range other.Fields {
		if !slices.ContainsFunc(e.Fields, func(g FieldError) bool { return g.Field == f.Field }) {
			e.Fields = append(e.Fields, f)
		}
	}
}

// take reads field name of an object into dst and removes it. Null leaves dst
// alone. What is not of dst's type is named with what it must be.
func take[T any](fields map[string]json.RawMessage, bad *InvalidError, at, name, want string, dst *T) {
	raw, ok := fields[name]
	delete(fields, name)
	if ok && json.Unmarshal(raw, dst) != nil {
		var zero T
		*dst = zero
		bad.add(at+name, "must be "+want, shown(raw))
	}
}

// rest names the fields that nobody took.
func rest(fields map[string]json.RawMessage, bad *InvalidError, at string) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		bad.add(at+clip(name), "is not a known field", nil)
	}
}

// shown is a bad value as an error may echo it.
func shown(raw json.RawMessage) any {
	var v any
	if len(raw) > 64 || json.Unmarshal(raw, &v) != nil {
		return nil
	}
	return v
}

const (
	wantText = "a text"
	wantTime = "a time such as 2011-10-14T12:00:00Z"
)

func explainUpdate(fields map[string]json.RawMessage, bad *InvalidError) Update {
	var u Update
	var lines []json.RawMessage
	take(fields, bad, "", "country", wantText, &u.Country)
	u.Address = explainAddress(fields, bad)
	_, hasLines := fields["lines"]
	take(fields, bad, "", "lines", "a list", &lines)
	rest(fields, bad, "")
	if hasLines {
		u.Lines = explainLines(lines, bad)
	}
	return u
}

func explainAddress(fields map[string]json.RawMessage, bad *InvalidError) *Address {
	raw, ok := fields["address"]
	delete(fields, "address")
	if !ok || isNull(raw) {
		return nil
	}
	var inner map[string]json.RawMessage
	if json.Unmarshal(raw, &inner) != nil {
		bad.add("address", "must be an object", shown(raw))
		return nil
	}
	var a Address
	const at = "address."
	take(inner, bad, at, addressName, wantText, &a.Name)
	take(inner, bad, at, addressStreet, wantText, &a.Street)
	take(inner, bad, at, addressCity, wantText, &a.City)
	take(inner, bad, at, addressRegion, wantText, &a.Region)
	take(inner, bad, at, addressPostcode, wantText, &a.Postcode)
	rest(inner, bad, at)
	return &a
}

func explainLines(lines []json.RawMessage, bad *InvalidError) []NewLine {
	out := make([]NewLine, 0, min(len(lines), MaxLines+1))
	for i, raw := range lines[:min(len(lines), MaxLines+1)] {
		if bad.full() {
			break // what more is wrong is not listed
		}
		out = append(out, explainLine(raw, bad, "lines["+strconv.Itoa(i)+"]"))
	}
	return out
}

func explainConfirmation(fields map[string]json.RawMessage, bad *InvalidError) Confirmation {
	rest(fields, bad, "")
	return Confirmation{}
}

func explainShipment(fields map[string]json.RawMessage, bad *InvalidError) Shipment {
	var h Shipment
	take(fields, bad, "", "carrier", wantText, &h.Carrier)
	take(fields, bad, "", "tracking", wantText, &h.Tracking)
	take(fields, bad, "", "shipped_at", wantTime, &h.ShippedAt)
	rest(fields, bad, "")
	return h
}

func explainOrder(fields map[string]json.RawMessage, bad *InvalidError) NewOrder {
	var n NewOrder
	var lines []json.RawMessage
	take(fields, bad, "", "invoice", wantText, &n.Invoice)
	take(fields, bad, "", "customer_id", wantText+" or null", &n.CustomerID)
	take(fields, bad, "", "country", wantText, &n.Country)
	take(fields, bad, "", "placed_at", wantTime, &n.PlacedAt)
	take(fields, bad, "", "currency", wantText, &n.Currency)
	take(fields, bad, "", "lines", "a list", &lines)
	n.Address = explainAddress(fields, bad)
	rest(fields, bad, "")
	n.Lines = explainLines(lines, bad)
	return n
}

func explainLine(raw json.RawMessage, bad *InvalidError, at string) NewLine {
	var l NewLine
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil || fields == nil {
		bad.add(at, "must be an object", shown(raw))
		// Its fields are not missing one by one.
		return NewLine{SKU: "-", Quantity: 1, UnitPrice: "0"}
	}
	at += "."
	take(fields, bad, at, "sku", wantText, &l.SKU)
	take(fields, bad, at, "description", wantText, &l.Description)
	take(fields, bad, at, "quantity", fmt.Sprintf("a whole number from 1 to %d", MaxQuantity), &l.Quantity)
	take(fields, bad, at, "unit_price", "a string or a number", &l.UnitPrice)
	rest(fields, bad, at)
	return l
}

func explainCancellation(fields map[string]json.RawMessage, bad *InvalidError) Cancellation {
	var c Cancellation
	var at *time.Time
	take(fields, bad, "", "credit_note", wantText, &c.CreditNote)
	take(fields, bad, "", "reason", wantText, &c.Reason)
	take(fields, bad, "", "cancelled_at", wantTime, &at)
	rest(fields, bad, "")
	c.CancelledAt = at
	return c
}

func decodeOrder(body []byte) (NewOrder, error) {
	return decode(body, explainOrder, (*NewOrder).Validate)
}

// decodeUpdate refuses null, which could mean to leave a field or to empty it.
func decodeUpdate(body []byte) (Update, error) {
	if err := checkForm(body); err != nil {
		return Update{}, err
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) == nil {
		var bad InvalidError
		for _, name := range []string{"country", "address", "lines"} {
			if raw, ok := fields[name]; ok && isNull(raw) {
				bad.add(name, "must not be null; leave it out to keep what is there", nil)
			}
		}
		if err := bad.orNil(); err != nil {
			return Update{}, err
		}
	}
	return decodeChecked(body, explainUpdate, (*Update).Validate)
}

// optional takes an empty body for an empty object.
func optional[T any](body []byte, explain func(map[string]json.RawMessage, *InvalidError) T, valid func(*T) error) (T, error) {
	if len(bytes.TrimSpace(body)) == 0 {
		var none T
		return none, nil
	}
	return decode(body, explain, valid)
}

func decodeCancellation(body []byte) (Cancellation, error) {
	return optional(body, explainCancellation, (*Cancellation).Validate)
}

func decodeConfirmation(body []byte) (Confirmation, error) {
	return optional(body, explainConfirmation, (*Confirmation).Validate)
}

func decodeShipment(body []byte) (Shipment, error) {
	return optional(body, explainShipment, (*Shipment).Validate)
}
