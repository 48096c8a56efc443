// Package kafkarecord decodes events from the records of their topics, for
// displaying and consuming them. Missing parts are empty: records of other
// programs are events, too.
package kafkarecord

import (
	"bytes"
	"encoding/json"
	"mime"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Event is a decoded record. One of Data, Text and Base64 is its payload, without a value none
// is; of Data and Base64, Base64 is, and Data is the payload decoded by its schema. Key and
// Headers are texts; where a text is not exactly what the record has, KeyBase64 and
// RecordHeaders are.
type Event struct {
	Topic         string            `json:"topic"`
	Partition     int32             `json:"partition"`
	Offset        int64             `json:"offset"`
	At            time.Time         `json:"at" doc:"Time of the record"`
	Key           string            `json:"key,omitempty"`
	KeyBase64     []byte            `json:"key_base64,omitzero" doc:"The key, if it is not UTF-8, or is empty and not null"`
	ID            string            `json:"event_id,omitempty"`
	Source        string            `json:"-"` // publisher: ids are unique within one source
	Type          string            `json:"event_type,omitempty"`
	AggregateID   string            `json:"aggregate_id,omitempty"`
	AggregateType string            `json:"aggregate_type,omitempty"`
	Sequence      int64             `json:"sequence,omitempty"`
	Time          string            `json:"time,omitempty" doc:"When it happened"`
	ContentType   string            `json:"content_type,omitempty"`
	Headers       map[string]string `json:"headers,omitempty"`
	RecordHeaders []Header          `json:"record_headers,omitzero" doc:"All headers of the record, in its order, if one of them has no value or is not UTF-8, or a name is repeated"`
	Data          json.RawMessage   `json:"data,omitempty" doc:"The payload if it is JSON, or decoded by its schema"`
	Text          *string           `json:"data_text,omitempty" doc:"The payload if it is another text, which may be empty. A record without a value (a tombstone) has none of data, data_text and data_base64"`
	Base64        []byte            `json:"data_base64,omitzero" doc:"The payload if it is neither. Beside data it is the payload, and data is its content, decoded by its schema or with other white space"`
}

// Header is a header of a record. One of Name and NameBase64 is its name.
type Header struct {
	Name       string `json:"name,omitempty"`
	NameBase64 []byte `json:"name_base64,omitzero" doc:"The name, if it is not UTF-8"`
	Value      []byte `json:"value_base64" doc:"null without a value"`
}

// Text returns the name as a text, with invalid UTF-8 replaced.
func (h *Header) Text() string {
	if h.NameBase64 != nil {
		return valid(string(h.NameBase64))
	}
	return h.Name
}

// Decode decodes a record. Its payload is not copied, and is JSON or text only
// if it is UTF-8. Other invalid UTF-8 is replaced.
func Decode(r *kgo.Record) Event {
	return DecodeWith(r, func(value []byte) bool { return utf8.Valid(value) && json.Valid(value) })
}

// DecodeWith is Decode with a JSON parser of the caller: isJSON reports whether a
// value is JSON in UTF-8.
func DecodeWith(r *kgo.Record, isJSON func(value []byte) bool) Event {
	e := Event{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, At: At(r)}
	texts := newTexts(r)
	e.Key = texts.next(r.Key)
	if r.Key != nil && (len(r.Key) == 0 || !utf8.Valid(r.Key)) {
		e.KeyBase64 = r.Key
	}
	if !areTexts(r.Headers) {
		e.RecordHeaders = recordHeaders(r.Headers)
	}
	for _, h := range r.Headers {
		v := texts.next(h.Value)
		switch h.Key {
		case outbox.HeaderID:
			e.ID = v
		case outbox.HeaderType:
			e.Type = v
		case outbox.HeaderSubject:
			e.AggregateID = v
		case outbox.HeaderAggregateType:
			e.AggregateType = v
		case outbox.HeaderSequence:
			e.Sequence, _ = strconv.ParseInt(v, 10, 64) // 0 if it is missing
		case outbox.HeaderTime:
			e.Time = v
		case outbox.HeaderContentType:
			e.ContentType = v
		case outbox.HeaderSource:
			e.Source = v
		case outbox.HeaderSpecVersion:
		default:
			if e.Headers == nil {
				e.Headers = make(map[string]string)
			}
			e.Headers[valid(h.Key)] = v
		}
	}
	switch {
	case r.Value == nil:
	case namesJSON(e.ContentType) && isJSON(r.Value):
		e.Data = r.Value
	case utf8.Valid(r.Value):
		s := string(r.Value)
		e.Text = &s
	default:
		e.Base64 = r.Value
	}
	return e
}

// areTexts reports whether a map of texts represents headers exactly.
func areTexts(headers []kgo.RecordHeader) bool {
	for i, h := range headers {
		if h.Value == nil || !utf8.Valid(h.Value) || !utf8.ValidString(h.Key) {
			return false
		}
		if h.Key == outbox.HeaderSequence { // which is a number in the event
			if n, err := strconv.ParseInt(string(h.Value), 10, 64); err != nil || n == 0 || strconv.FormatInt(n, 10) != string(h.Value) {
				return false
			}
		}
		for _, before := range headers[:i] {
			if before.Key == h.Key {
				return false
			}
		}
	}
	return true
}

func recordHeaders(headers []kgo.RecordHeader) []Header {
	out := make([]Header, len(headers))
	for i, h := range headers {
		if out[i] = (Header{Name: h.Key, Value: h.Value}); !utf8.ValidString(h.Key) {
			out[i].Name, out[i].NameBase64 = "", []byte(h.Key)
		}
	}
	return out
}

// texts are the key and the header values of a record, in one allocation.
type texts struct{ rest string }

func newTexts(r *kgo.Record) texts {
	size := len(r.Key)
	for _, h := range r.Headers {
		size += len(h.Value)
	}
	var all strings.Builder
	all.Grow(size)
	all.Write(r.Key)
	for _, h := range r.Headers {
		all.Write(h.Value)
	}
	return texts{all.String()}
}

// next returns the text of b, which is the next value.
func (t *texts) next(b []byte) string {
	s := t.rest[:len(b)]
	t.rest = t.rest[len(b):]
	return valid(s)
}

// namesJSON reports whether a content type is that of JSON; a missing one may be.
func namesJSON(contentType string) bool {
	if contentType == "" || contentType == "application/json" {
		return true
	}
	t, _, _ := mime.ParseMediaType(contentType)
	return t == "" || strings.HasSuffix(t, "json")
}

// At returns the time of a record; zero if a producer set a year that JSON
// cannot represent.
func At(r *kgo.Record) time.Time {
	t := r.Timestamp.UTC()
	if y := t.Year(); y < 1 || y > 9999 {
		return time.Time{}
	}
	return t
}

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Payload returns the bytes of the payload, nil for a record without a value.
func (e *Event) Payload() []byte {
	switch {
	case e.Base64 != nil:
		return e.Base64
	case e.Data != nil:
		return e.Data
	case e.Text != nil:
		return []byte(*e.Text)
	}
	return nil
}

// Exact returns the event with Base64 and KeyBase64 beside the texts, unless the record has no
// value or no key.
func (e Event) Exact() Event {
	e.Base64, e.KeyBase64 = e.Payload(), e.RecordKey()
	return e
}

// ForJSON returns the event for encoding/json, which removes white space from Data and escapes
// characters: where Data would change, Base64 is beside it.
func (e Event) ForJSON() Event {
	if e.Data != nil && e.Base64 == nil {
		if b, err := json.Marshal(e.Data); err != nil || !bytes.Equal(b, e.Data) {
			e.Base64 = e.Data
		}
	}
	return e
}

// RecordKey returns the bytes of the key, nil for a record without one.
func (e *Event) RecordKey() []byte {
	if e.KeyBase64 != nil || e.Key == "" {
		return e.KeyBase64
	}
	return []byte(e.Key)
}
