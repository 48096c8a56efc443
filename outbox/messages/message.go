package messages

import (
	"encoding/json"
	"net/url"
	"strconv"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox/api"
)

// State is the state of a message.
type State string

// The most common states; the API description lists all.
const (
	// Scheduled: it is not due yet and can be cancelled.
	Scheduled State = "scheduled"
	// Cancelled: it was cancelled and is never published.
	Cancelled State = "cancelled"
	// Queued: it is stored and not in its topic yet.
	Queued State = "queued"
	// Completed: it is in its topic.
	Completed State = "completed"
)

// NewMessage is a message to publish. At most one of Payload, PayloadText,
// PayloadBase64 and Tombstone may be set, and at most one of Delay and DeliverAt, up to 366
// days ahead; without either it is published immediately.
type NewMessage struct {
	Topic string `json:"topic"`
	// Key is the record key; default: the message's id. Messages with one key
	// reach one partition, in no guaranteed order.
	Key           string          `json:"key,omitempty"`
	Payload       json.RawMessage `json:"payload,omitempty"`
	PayloadText   *string         `json:"payload_text,omitempty"`
	PayloadBase64 []byte          `json:"payload_base64,omitempty"`
	// Tombstone sends a record without a value, which deletes its key from a compacted topic.
	// It requires Key.
	Tombstone   bool              `json:"tombstone,omitempty"`
	ContentType string            `json:"content_type,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Delay       time.Duration     `json:"-"`
	DeliverAt   *time.Time        `json:"deliver_at,omitempty"`
	// Priority, 0 to 9, travels in the record header outbox-priority.
	Priority *int `json:"priority,omitempty"`
	// MaxReceive, 1 to 1,000, replaces that of subscriptions for this message.
	MaxReceive *int `json:"max_receive,omitempty"`
}

// MarshalJSON writes the delay as the API reads it.
func (m NewMessage) MarshalJSON() ([]byte, error) {
	type plain NewMessage // without this method
	out := struct {
		plain
		Delay string `json:"delay,omitempty"`
	}{plain: plain(m)}
	if m.Delay != 0 {
		out.Delay = m.Delay.String()
	}
	return json.Marshal(out)
}

// Accepted is a stored message.
type Accepted struct {
	ID        string    `json:"id"`
	State     State     `json:"state"`
	CreatedAt time.Time `json:"created_at"`
	// DeliverAt is the due time; nil for immediate delivery.
	DeliverAt *time.Time `json:"deliver_at"`
}

// Result is the result of one message of a batch: it is stored, or there
// is a problem.
type Result struct {
	Index   int          `json:"index"`
	Message *Accepted    `json:"message"`
	Problem *api.Problem `json:"problem"`
}

// Message is the state of a message.
type Message struct {
	ID        string     `json:"id"`
	State     State      `json:"state"`
	Topic     string     `json:"topic"`
	Key       string     `json:"key"`
	CreatedAt time.Time  `json:"created_at"`
	DeliverAt *time.Time `json:"deliver_at"`
	// Record is the position of the record, once it is Completed.
	Record  *Record `json:"record"`
	History []Step  `json:"history"`
	// Note describes the part of the state that could not be read.
	Note string `json:"note"`
}

// Content is the payload, media type and headers of a message.
type Content struct {
	ContentType string            `json:"content_type"`
	Headers     map[string]string `json:"headers"`
	// PayloadText is the payload if it is UTF-8; otherwise it is nil, and the payload is PayloadBase64.
	// Both are nil for a tombstone.
	PayloadText   *string `json:"payload_text"`
	PayloadBase64 []byte  `json:"payload_base64"`
}

// Payload is the payload in either form; nil for a tombstone.
func (c *Content) Payload() []byte {
	switch {
	case c == nil:
		return nil
	case c.PayloadText != nil:
		return []byte(*c.PayloadText)
	}
	return c.PayloadBase64
}

// Record is a place in a topic.
type Record struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}

// Step is one entry of the history of a message.
type Step struct {
	State  State     `json:"state"`
	At     time.Time `json:"at"`
	Detail string    `json:"detail"`
}

// Query selects waiting messages. The zero value selects all.
type Query struct {
	// Topic and Key narrow the list down.
	Topic, Key string
	// Since and Until bound the due time; zero is no bound.
	Since, Until time.Time
	// Limit is the maximum page size; 0 means 100.
	Limit int
	// Cursor is Page.Next of the page before.
	Cursor string
}

func (q *Query) values() url.Values {
	v := url.Values{"state": {string(Scheduled)}}
	set := func(name, value string) {
		if value != "" {
			v.Set(name, value)
		}
	}
	set("topic", q.Topic)
	set("key", q.Key)
	set("cursor", q.Cursor)
	if !q.Since.IsZero() {
		v.Set("since", q.Since.Format(time.RFC3339Nano))
	}
	if !q.Until.IsZero() {
		v.Set("until", q.Until.Format(time.RFC3339Nano))
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	return v
}

// Page is a page of the messages that wait, the next to be delivered
// first. It may be short, even empty, though more follow.
type Page struct {
	Messages []Message `json:"messages"`
	// Next is the cursor of the next page; empty on the last page.
	Next string `json:"next"`
}
