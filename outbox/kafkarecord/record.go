// Package kafkarecord decodes events from the records of their topics, for
// displaying and consuming them. Missing parts are empty: records of other
// programs are events, too.
package kafkarecord

import (
	"encoding/json"
	"mime"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// Event is a decoded record. One of Data, Text and Base64 is its payload; of Data and Base64,
// Base64 is, and Data is the payload decoded by its schema.
type Event struct {
	Topic         string            `json:"topic"`
	Partition     int32             `json:"partition"`
	Offset        int64             `json:"offset"`
	At            time.Time         `json:"at" doc:"Time of the record"`
	Key           string            `json:"key,omitempty"`
	ID            string            `json:"event_id,omitempty"`
	Source        string            `json:"-"` // publisher: ids are unique within one source
	Type          string            `json:"event_type,omitempty"`
	AggregateID   string            `json:"aggregate_id,omitempty"`
	AggregateType string            `json:"aggregate_type,omitempty"`
	Sequence      int64             `json:"sequence,omitempty"`
	Time          string            `json:"time,omitempty" doc:"When it happened"`
	ContentType   string            `json:"content_type,omitempty"`
	Headers       map[string]string `json:"headers,omitempty"`
	Data          json.RawMessage   `json:"data,omitempty" doc:"The payload if it is JSON, or decoded by its schema"`
	Text          *string           `json:"data_text,omitempty" doc:"The payload if it is another text"`
	Base64        []byte            `json:"data_base64,omitempty" doc:"The payload if it is neither, or beside data, which is decoded by its schema"`
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

// Payload are the bytes of the payload.
func (e *Event) Payload() []byte {
	switch {
	case e.Base64 != nil:
		return e.Base64
	case e.Data != nil:
		return e.Data
	case e.Text != nil:
		return []byte(*e.Text)
	}
	return e.Base64
}
