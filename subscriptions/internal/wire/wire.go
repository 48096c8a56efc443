// Package wire encodes messages and results as JSON for consumers and for other instances.
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

	"github.com/scylla-outbox/scylla-outbox/outbox/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// Message is the JSON form of a subscriptions.Message. AppendMessage writes it.
type Message struct {
	Receipt    string    `json:"receipt,omitempty" doc:"Names this delivery for ack, nack, extend, reject and release; absent with auto_ack"`
	Attempt    int       `json:"attempt" doc:"Number of deliveries of the message, from 1"`
	MaxReceive int       `json:"max_receive" doc:"Number of deliveries after which the message becomes a dead letter"`
	LeaseUntil time.Time `json:"lease_until,omitzero" doc:"End of the lease; absent with auto_ack"`
	kafkarecord.Event
}

// Result is the JSON form of a subscriptions.Result. AppendResults writes it.
type Result struct {
	Code       subscriptions.Code `json:"code" enum:"ok,lease_expired,invalid_receipt,unknown,unavailable" doc:"ok: the action is durable. lease_expired: nothing was changed, the message may be delivered again. unknown, unavailable: repeat the request"`
	Error      string             `json:"error,omitempty" doc:"Reason of codes other than ok"`
	LeaseUntil time.Time          `json:"lease_until,omitzero" doc:"New end of the lease after extend"`
}

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

// AppendMessage appends a message as a JSON object without line breaks. Its data is not
// parsed again: kafkarecord.Decode has validated it.
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
	switch {
	case len(m.Data) > 0:
		o.name("data")
		o.b = appendData(o.b, m.Data)
	case m.Text != nil:
		o.name("data_text")
		o.quote(*m.Text)
	}
	if len(m.Base64) > 0 {
		o.name("data_base64")
		o.b = append(base64.StdEncoding.AppendEncode(append(o.b, '"'), m.Base64), '"')
	}
	return append(o.b, '}')
}

// appendData appends a JSON value. Line breaks, which are insignificant in JSON, would end
// a line of an event stream.
func appendData(b []byte, data json.RawMessage) []byte {
	if bytes.IndexByte(data, '\n') < 0 && bytes.IndexByte(data, '\r') < 0 {
		return append(b, data...)
	}
	for _, c := range data {
		if c != '\n' && c != '\r' {
			b = append(b, c)
		}
	}
	return b
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
		Messages []Message `json:"messages"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, fmt.Errorf("decode messages: %w", err)
	}
	out := make([]subscriptions.Message, len(in.Messages))
	for i := range in.Messages {
		m := &in.Messages[i]
		out[i] = subscriptions.Message{Event: m.Event, Receipt: m.Receipt, Attempt: m.Attempt, MaxReceive: m.MaxReceive, LeaseUntil: m.LeaseUntil}
	}
	return out, nil
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

func (o *object) number(name string, n int64) {
	o.name(name)
	o.b = strconv.AppendInt(o.b, n, 10)
}

func (o *object) time(name string, t time.Time) {
	o.name(name)
	o.b = append(t.UTC().AppendFormat(append(o.b, '"'), time.RFC3339Nano), '"')
}
