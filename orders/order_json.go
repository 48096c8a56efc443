package orders

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// encode returns o as JSON, with the members of its tags in their order. Reflection would take as
// much time as decoding the request.
func (o *Order) encode() ([]byte, error) {
	j := jsonObject{b: make([]byte, 0, 768+160*len(o.Lines))}
	j.b = append(j.b, '{')
	j.text("id", o.ID.String())
	j.number("version", o.Version)
	j.text("status", string(o.Status))
	j.optional("invoice", o.Invoice)
	j.member("customer_id")
	if o.CustomerID == nil {
		j.b = append(j.b, "null"...)
	} else {
		j.quote(*o.CustomerID)
	}
	j.text("country", o.Country)
	if a := o.Address; a != nil {
		j.open("address", '{')
		j.text(addressName, a.Name)
		j.text(addressStreet, a.Street)
		j.text(addressCity, a.City)
		j.optional(addressRegion, a.Region)
		j.optional(addressPostcode, a.Postcode)
		j.b = append(j.b, '}')
	}
	j.time("placed_at", &o.PlacedAt)
	j.text("currency", o.Currency)
	j.open("lines", '[')
	for i := range o.Lines {
		l := &o.Lines[i]
		if i > 0 {
			j.b = append(j.b, ',')
		}
		j.b = append(j.b, '{')
		j.text("sku", l.SKU)
		j.optional("description", l.Description)
		j.number("quantity", int64(l.Quantity))
		j.money("unit_price", l.UnitPrice)
		j.b = append(j.b, '}')
	}
	j.b = append(j.b, ']')
	j.money("total", o.Total)
	j.time("created_at", &o.CreatedAt)
	j.time("updated_at", &o.UpdatedAt)
	j.time("confirmed_at", o.ConfirmedAt)
	j.time("shipped_at", o.ShippedAt)
	j.optional("carrier", o.Carrier)
	j.optional("tracking", o.Tracking)
	j.time("cancelled_at", o.CancelledAt)
	j.optional("credit_note", o.CreditNote)
	j.optional("cancel_reason", o.CancelReason)
	if j.err != nil {
		return nil, fmt.Errorf("encode order %s: %w", o.ID, j.err)
	}
	return append(j.b, '}'), nil
}

// jsonObject is a JSON object that is being written. err is the first error of a time.
type jsonObject struct {
	b   []byte
	err error
}

// member writes a name, which needs no escapes.
func (j *jsonObject) member(name string) {
	if last := j.b[len(j.b)-1]; last != '{' {
		j.b = append(j.b, ',')
	}
	j.b = append(append(append(j.b, '"'), name...), `":`...)
}

// quote writes a text. Invalid UTF-8 is replaced. As in encoding/json the line separators of Unicode
// are escaped: a consumer may split a topic's values into lines.
func (j *jsonObject) quote(v string) {
	begin := len(j.b)
	j.b, _ = jsontext.AppendQuote(j.b, v)
	if strings.ContainsAny(v, "\u2028\u2029") {
		j.b = append(j.b[:begin], lineSeparators.Replace(string(j.b[begin:]))...)
	}
}

var lineSeparators = strings.NewReplacer("\u2028", `\u2028`, "\u2029", `\u2029`)

func (j *jsonObject) open(name string, bracket byte) {
	j.member(name)
	j.b = append(j.b, bracket)
}

func (j *jsonObject) text(name, v string) {
	j.member(name)
	j.quote(v)
}

// optional omits an empty text.
func (j *jsonObject) optional(name, v string) {
	if v != "" {
		j.text(name, v)
	}
}

func (j *jsonObject) number(name string, v int64) {
	j.member(name)
	j.b = strconv.AppendInt(j.b, v, 10)
}

// money writes the text of an amount, so that no reader makes a float of it.
func (j *jsonObject) money(name string, m Money) {
	j.member(name)
	j.b = append(m.appendText(append(j.b, '"')), '"')
}

// time omits a time that is nil.
func (j *jsonObject) time(name string, t *time.Time) {
	if t == nil {
		return
	}
	j.member(name)
	b, err := t.AppendText(append(j.b, '"'))
	if err != nil && j.err == nil {
		j.err = fmt.Errorf("%s: %w", name, err)
	}
	j.b = append(b, '"')
}
