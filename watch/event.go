package watch

import (
	"encoding/json"
	"mime"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/relay/outbox"
)

// Event is a record as watchers see it. One of Data, Text and Base64 is its payload.
type Event struct {
	Topic         string            `json:"topic"`
	Partition     int32             `json:"partition"`
	Offset        int64             `json:"offset"`
	At            time.Time         `json:"at" doc:"When it came to its topic"`
	Key           string            `json:"key,omitempty"`
	ID            string            `json:"event_id,omitempty"`
	Type          string            `json:"event_type,omitempty"`
	AggregateID   string            `json:"aggregate_id,omitempty"`
	AggregateType string            `json:"aggregate_type,omitempty"`
	Sequence      int64             `json:"sequence,omitempty"`
	Time          string            `json:"time,omitempty" doc:"When it happened"`
	ContentType   string            `json:"content_type,omitempty"`
	Headers       map[string]string `json:"headers,omitempty"`
	Data          json.RawMessage   `json:"data,omitempty" doc:"The payload if it is JSON"`
	Text          *string           `json:"data_text,omitempty" doc:"The payload if it is another text"`
	Base64        []byte            `json:"data_base64,omitempty" doc:"The payload if it is neither"`
}

func newEvent(r *kgo.Record) Event {
	e := Event{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, At: r.Timestamp.UTC(), Key: strings.ToValidUTF8(string(r.Key), "\uFFFD")}
	for _, h := range r.Headers {
		v := strings.ToValidUTF8(string(h.Value), "\uFFFD")
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
			e.Sequence, _ = strconv.ParseInt(v, 10, 64) // 0 is what one without has
		case outbox.HeaderTime:
			e.Time = v
		case outbox.HeaderContentType:
			e.ContentType = v
		case outbox.HeaderSource, outbox.HeaderSpecVersion:
		default:
			if e.Headers == nil {
				e.Headers = make(map[string]string)
			}
			e.Headers[strings.ToValidUTF8(h.Key, "\uFFFD")] = v
		}
	}
	t, _, _ := mime.ParseMediaType(e.ContentType)
	switch {
	case (t == "" || strings.HasSuffix(t, "json")) && json.Valid(r.Value):
		e.Data = r.Value
	case utf8.Valid(r.Value):
		s := string(r.Value)
		e.Text = &s
	default:
		e.Base64 = r.Value
	}
	return e
}

// shared is one record for all its watchers: it is made an event, and JSON, once.
type shared struct {
	record *kgo.Record
	id     string // header ce_id, and so on
	typ    string
	about  string

	once sync.Once
	json []byte
}

func newShared(r *kgo.Record) *shared {
	s := &shared{record: r}
	for i := range r.Headers {
		switch r.Headers[i].Key {
		case outbox.HeaderID:
			s.id = string(r.Headers[i].Value)
		case outbox.HeaderType:
			s.typ = string(r.Headers[i].Value)
		case outbox.HeaderSubject:
			s.about = string(r.Headers[i].Value)
		}
	}
	return s
}

// JSON is the event as it is sent. It is safe for concurrent use.
func (s *shared) JSON() []byte {
	s.once.Do(func() {
		e := newEvent(s.record)
		s.json, _ = json.Marshal(&e) // texts, numbers and valid JSON are always marshalled
	})
	return s.json
}
