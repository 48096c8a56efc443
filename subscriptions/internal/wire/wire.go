// Package wire encodes messages and results as JSON for consumers and for other instances.
//
// # Premises
//
//   - It relies on data that is JSON, as kafkarecord.Decode makes it. If it is not, a response is no
//     JSON: Messages refuses all of it, and the leases of its messages expire.
//   - It relies on instances that ignore members they do not know. So a response of a later version
//     is read, without its new members.
package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// maxAhead bounds the memory that is allocated before the messages are encoded.
const maxAhead = 2 << 20

// AppendMessages appends {"messages":[…]}.
func AppendMessages(b []byte, ms []subscriptions.Message) []byte {
	b = append(b, `{"messages":[`...)
	for i, start := 0, len(b); i < len(ms); i++ {
		if i > 0 {
			b = append(b, ',')
		}
		b = AppendMessage(b, &ms[i])
		if i == 0 { // most messages of a response have about the same size
			b = slices.Grow(b, min((len(b)-start)*len(ms), maxAhead))
		}
	}
	return append(b, `]}`...)
}

// AppendMessage appends a message as a JSON object. Its data is that of the record, byte for
// byte, and is not parsed again: kafkarecord.Decode has validated it. Beside data with white
// space around it, data_base64 is the payload.
func AppendMessage(b []byte, m *subscriptions.Message) []byte {
	o := object{append(b, '{')}
	o.text("receipt", m.Receipt)
	o.number("attempt", int64(m.Attempt))
	o.number("max_receive", int64(m.MaxReceive))
	if m.Receipt != "" {
		o.time("lease_until", m.LeaseUntil)
	}
	o.name("topic")
	o.quote(m.Topic)
	o.number("partition", int64(m.Partition))
	o.number("offset", m.Offset)
	o.time("at", m.At)
	o.text("key", m.Key)
	o.base64("key_base64", m.KeyBase64)
	o.text("event_id", m.ID)
	o.text("event_type", m.Type)
	o.text("aggregate_id", m.AggregateID)
	o.text("aggregate_type", m.AggregateType)
	if m.Sequence != 0 {
		o.number("sequence", m.Sequence)
	}
	o.text("time", m.Time)
	o.text("content_type", m.ContentType)
	if len(m.Headers) > 0 {
		o.name("headers")
		headers := object{append(o.b, '{')}
		var most [8]string // without an allocation
		names := most[:0]
		for name := range m.Headers {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			headers.next()
			headers.quote(name)
			headers.b = append(headers.b, ':')
			headers.quote(m.Headers[name])
		}
		o.b = append(headers.b, '}')
	}
	if m.RecordHeaders != nil {
		o.name("record_headers")
		o.b = append(o.b, '[')
		for i, h := range m.RecordHeaders {
			if i > 0 {
				o.b = append(o.b, ',')
			}
			header := object{append(o.b, '{')}
			header.text("name", h.Name)
			header.base64("name_base64", h.NameBase64)
			if header.base64("value_base64", h.Value); h.Value == nil {
				header.name("value_base64")
				header.b = append(header.b, "null"...)
			}
			o.b = append(header.b, '}')
		}
		o.b = append(o.b, ']')
	}
	exact := m.Base64
	switch {
	case len(m.Data) > 0:
		o.name("data")
		data := bytes.Trim(m.Data, " \t\r\n")
		if o.b = append(o.b, data...); len(data) < len(m.Data) { // parsers of the message do not return what surrounds a value
			exact = m.Payload()
		}
	case m.Text != nil:
		o.name("data_text")
		o.quote(*m.Text)
	}
	o.base64("data_base64", exact)
	return append(o.b, '}')
}

// AppendLine is AppendMessage without line breaks, which would end a line of an event stream.
// Beside data that has some, data_base64 is the payload.
func AppendLine(b []byte, m *subscriptions.Message) []byte {
	if !bytes.ContainsAny(m.Data, "\r\n") {
		return AppendMessage(b, m)
	}
	line := *m
	line.Base64 = m.Payload()
	line.Data = slices.DeleteFunc(slices.Clone(m.Data), func(c byte) bool { return c == '\n' || c == '\r' }) // they are insignificant in JSON
	return AppendMessage(b, &line)
}

// AppendResults appends a list of results.
func AppendResults(b []byte, rs []subscriptions.Result) []byte {
	b = append(b, '[')
	for i := range rs {
		if i > 0 {
			b = append(b, ',')
		}
		o := object{append(b, '{')}
		o.text("code", string(rs[i].Code))
		o.text("error", rs[i].Error)
		if !rs[i].LeaseUntil.IsZero() {
			o.time("lease_until", rs[i].LeaseUntil)
		}
		b = append(o.b, '}')
	}
	return append(b, ']')
}

// Messages decodes what AppendMessages has encoded.
func Messages(body []byte) ([]subscriptions.Message, error) {
	var in struct {
		Messages []subscriptions.Message `json:"messages"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, fmt.Errorf("decode messages: %w", err)
	}
	return in.Messages, nil
}

// object appends the members of a JSON object.
type object struct{ b []byte }

// next separates a member from the one before it.
func (o *object) next() {
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ',')
	}
}

// name appends the name of a member, which needs no escapes.
func (o *object) name(name string) {
	o.next()
	o.b = append(append(append(o.b, '"'), name...), '"', ':')
}

// quote appends a JSON text. Invalid UTF-8 is replaced, which is its only error.
func (o *object) quote(s string) { o.b, _ = jsontext.AppendQuote(o.b, s) }

// text appends a member unless it is empty.
func (o *object) text(name, value string) {
	if value != "" {
		o.name(name)
		o.quote(value)
	}
}

// base64 appends a member unless it is nil.
func (o *object) base64(name string, value []byte) {
	if value != nil {
		o.name(name)
		o.b = append(base64.StdEncoding.AppendEncode(append(o.b, '"'), value), '"')
	}
}

func (o *object) number(name string, n int64) {
	o.name(name)
	o.b = strconv.AppendInt(o.b, n, 10)
}

func (o *object) time(name string, t time.Time) {
	o.name(name)
	o.b = append(t.UTC().AppendFormat(append(o.b, '"'), time.RFC3339Nano), '"')
}
