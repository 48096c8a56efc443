package orders

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
)

// form bounds the structure of a body. This API accepts at most four levels and
// eight members; the remaining room is for reporting unknown fields by name.
var form = jsonform.Bounds{Depth: 8, Members: 32, Items: MaxLines}

const (
	wantText = jsonform.WantText
	wantTime = jsonform.WantTime
)

// decode reads a request body. The error is a *jsonform.SyntaxError, or an
// *InvalidError with every invalid field: wrong types, unknown fields and
// values that Validate rejects.
func decode[T any](body []byte, explain func(map[string]json.RawMessage, *InvalidError) T, valid func(*T) error) (T, error) {
	if v, ok := jsonform.DecodeValid(body, valid); ok {
		return v, nil
	}
	if err := jsonform.Check(body, form); err != nil {
		var none T
		return none, err
	}
	return jsonform.Decode(body, explain, valid)
}

func explainUpdate(fields map[string]json.RawMessage, bad *InvalidError) Update {
	var u Update
	var lines []json.RawMessage
	jsonform.Take(fields, bad, "", "country", wantText, &u.Country)
	u.Address = explainAddress(fields, bad)
	_, hasLines := fields["lines"]
	jsonform.Take(fields, bad, "", "lines", "a list", &lines)
	jsonform.Rest(fields, bad, "")
	if hasLines {
		u.Lines = explainLines(lines, bad)
	}
	return u
}

func explainAddress(fields map[string]json.RawMessage, bad *InvalidError) *Address {
	raw, ok := fields["address"]
	delete(fields, "address")
	if !ok || jsonform.IsNull(raw) {
		return nil
	}
	var inner map[string]json.RawMessage
	if json.Unmarshal(raw, &inner) != nil {
		bad.Add("address", "must be an object")
		return nil
	}
	var a Address
	const at = "address."
	jsonform.Take(inner, bad, at, addressName, wantText, &a.Name)
	jsonform.Take(inner, bad, at, addressStreet, wantText, &a.Street)
	jsonform.Take(inner, bad, at, addressCity, wantText, &a.City)
	jsonform.Take(inner, bad, at, addressRegion, wantText, &a.Region)
	jsonform.Take(inner, bad, at, addressPostcode, wantText, &a.Postcode)
	jsonform.Rest(inner, bad, at)
	return &a
}

func explainLines(lines []json.RawMessage, bad *InvalidError) []NewLine {
	out := make([]NewLine, 0, min(len(lines), MaxLines+1))
	for i, raw := range lines[:min(len(lines), MaxLines+1)] {
		if bad.Full() {
			break // further problems are not listed
		}
		out = append(out, explainLine(raw, bad, "lines["+strconv.Itoa(i)+"]"))
	}
	return out
}

func explainConfirmation(fields map[string]json.RawMessage, bad *InvalidError) Confirmation {
	jsonform.Rest(fields, bad, "")
	return Confirmation{}
}

func explainShipment(fields map[string]json.RawMessage, bad *InvalidError) Shipment {
	var h Shipment
	jsonform.Take(fields, bad, "", "carrier", wantText, &h.Carrier)
	jsonform.Take(fields, bad, "", "tracking", wantText, &h.Tracking)
	jsonform.Take(fields, bad, "", "shipped_at", wantTime, &h.ShippedAt)
	jsonform.Rest(fields, bad, "")
	return h
}

func explainOrder(fields map[string]json.RawMessage, bad *InvalidError) NewOrder {
	var n NewOrder
	var lines []json.RawMessage
	jsonform.Take(fields, bad, "", "invoice", wantText, &n.Invoice)
	jsonform.Take(fields, bad, "", "customer_id", wantText+" or null", &n.CustomerID)
	jsonform.Take(fields, bad, "", "country", wantText, &n.Country)
	jsonform.Take(fields, bad, "", "placed_at", wantTime, &n.PlacedAt)
	jsonform.Take(fields, bad, "", "currency", wantText, &n.Currency)
	jsonform.Take(fields, bad, "", "lines", "a list", &lines)
	n.Address = explainAddress(fields, bad)
	jsonform.Rest(fields, bad, "")
	n.Lines = explainLines(lines, bad)
	return n
}

func explainLine(raw json.RawMessage, bad *InvalidError, at string) NewLine {
	var l NewLine
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil || fields == nil {
		bad.Add(at, "must be an object")
		// Its fields are not missing one by one.
		return NewLine{SKU: "-", Quantity: 1, UnitPrice: "0"}
	}
	at += "."
	jsonform.Take(fields, bad, at, "sku", wantText, &l.SKU)
	jsonform.Take(fields, bad, at, "description", wantText, &l.Description)
	jsonform.Take(fields, bad, at, "quantity", fmt.Sprintf("a whole number from 1 to %d", MaxQuantity), &l.Quantity)
	jsonform.Take(fields, bad, at, "unit_price", "a string or a number", &l.UnitPrice)
	jsonform.Rest(fields, bad, at)
	return l
}

func explainCancellation(fields map[string]json.RawMessage, bad *InvalidError) Cancellation {
	var c Cancellation
	var at *time.Time
	jsonform.Take(fields, bad, "", "credit_note", wantText, &c.CreditNote)
	jsonform.Take(fields, bad, "", "reason", wantText, &c.Reason)
	jsonform.Take(fields, bad, "", "cancelled_at", wantTime, &at)
	jsonform.Rest(fields, bad, "")
	c.CancelledAt = at
	return c
}

func decodeOrder(body []byte) (NewOrder, error) {
	return decode(body, explainOrder, (*NewOrder).Validate)
}

// decodeUpdate rejects null, which could mean to keep a field or to clear it.
func decodeUpdate(body []byte) (Update, error) {
	if err := jsonform.Check(body, form); err != nil {
		return Update{}, err
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) == nil {
		var bad InvalidError
		for _, name := range []string{"country", "address", "lines"} {
			if raw, ok := fields[name]; ok && jsonform.IsNull(raw) {
				bad.Add(name, "must not be null; omit it to keep the current value")
			}
		}
		if err := bad.OrNil(); err != nil {
			return Update{}, err
		}
	}
	return jsonform.Decode(body, explainUpdate, (*Update).Validate)
}

// optional accepts an empty body as an empty object.
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
