package messages

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/payload"
	"github.com/scylla-outbox/scylla-outbox/schedule"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
)

// maxPriority is the highest priority.
const maxPriority = 9

// NewMessage is a message to be stored.
type NewMessage struct {
	// Topic is the topic of the record.
	Topic string `json:"topic" pattern:"^([a-zA-Z0-9-][a-zA-Z0-9._-]{0,248}|\\.[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,247}|\\.\\.[a-zA-Z0-9._-]{1,247})$" doc:"Topic of the record" example:"reminders"`
	// Key is the record key; empty means the id. It guarantees no order.
	Key string `json:"key,omitempty" pattern:"^[^\\x00-\\x1f\\x7f-\\x9f]*$" maxLength:"249" doc:"Record key, at most 249 bytes of printable UTF-8; default: the id of the message. Messages with one key reach one partition. Their order is not guaranteed: neither of items of a batch, nor of consecutive requests, nor of messages for the same time; and a failed message does not block others. If order matters, add a number or a time to the payload, or write events with a sequence to an outbox of your own." example:"customer-42"`
	// Only one of the four may be set; without any the record has an empty value.
	Payload       json.RawMessage `json:"payload,omitempty" doc:"Any JSON value; published byte for byte"`
	PayloadText   *string         `json:"payload_text,omitempty" doc:"A text, instead of payload"`
	PayloadBase64 *[]byte         `json:"payload_base64,omitempty" pattern:"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$" doc:"Bytes in base64, instead of payload"`
	Tombstone     bool            `json:"tombstone,omitempty" doc:"Instead of payload: the record has no value, which deletes its key from a compacted topic. Requires key"`
	// ContentType is the payload's media type.
	ContentType string            `json:"content_type,omitempty" pattern:"^[^\\x00-\\x1f\\x7f-\\x9f]*$" maxLength:"249" doc:"Media type; by default application/json, text/plain or application/octet-stream, depending on the payload field"`
	Headers     map[string]string `json:"headers,omitempty" maxProperties:"64" doc:"Record headers"`
	// Delay or DeliverAt set the time; without either the message is due
	// immediately.
	Delay     httpapi.Duration `json:"delay,omitempty" doc:"Delay of the delivery, such as 90s, 15m or 36h; at most 366 days" example:"15m"`
	DeliverAt *time.Time       `json:"deliver_at,omitempty" doc:"Time of the delivery, instead of delay; a time in the past means immediately"`
	// Priority travels in outbox.HeaderPriority.
	Priority *int `json:"priority,omitempty" minimum:"0" maximum:"9" doc:"Carried in the record header outbox-priority, for consumers; the outbox delivers in order of time"`
	// MaxReceive travels in the header subscriptions.HeaderMaxReceive.
	MaxReceive *int `json:"max_receive,omitempty" minimum:"1" maximum:"1000" doc:"Number of deliveries by a subscription after which the message becomes a dead letter, instead of the subscription's own; carried in the record header outbox-max-receive"`
}

var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

// isAllowed reports whether the topic accepts messages.
func (c *Config) isAllowed(topic string) bool {
	matches := func(p string) bool {
		ok, _ := path.Match(p, topic)
		return ok
	}
	switch {
	case strings.HasPrefix(topic, "_"):
		return false
	case slices.Contains(c.Topics, topic):
		return true
	}
	return slices.ContainsFunc(c.Topics, matches) && !slices.ContainsFunc(c.Reserved, matches)
}

// size returns the size of a message for its quota.
func (n *NewMessage) size() int {
	size := len(n.Key) + len(n.bytes())
	for k, v := range n.Headers {
		size += len(k) + len(v)
	}
	return size
}

// bytes returns the payload; nil for a tombstone.
func (n *NewMessage) bytes() []byte {
	switch {
	case n.Tombstone:
		return nil
	case n.PayloadText != nil:
		return []byte(*n.PayloadText)
	case n.PayloadBase64 != nil:
		return *n.PayloadBase64
	case n.Payload != nil:
		return n.Payload
	}
	return []byte{}
}

func (n *NewMessage) contentType() string {
	switch {
	case n.ContentType != "":
		return n.ContentType
	case n.PayloadText != nil:
		return "text/plain; charset=utf-8"
	case n.PayloadBase64 != nil:
		return "application/octet-stream"
	}
	return outbox.DefaultContentType
}

// validate returns an *InvalidError that names every bad field.
func (n *NewMessage) validate(c *Config, now time.Time) error {
	var bad InvalidError
	switch {
	case n.Topic == "":
		bad.Add("topic", "is missing")
	case !topicName.MatchString(n.Topic) || n.Topic == "." || n.Topic == "..":
		bad.Add("topic", "must be letters, digits and . _ -, at most 249")
	case strings.HasPrefix(n.Topic, "_"):
		bad.Add("topic", "begins with _ and is reserved for the broker")
	case !c.isAllowed(n.Topic):
		bad.Add("topic", "does not accept messages; allowed are "+strings.Join(c.Topics, ", "))
	}
	kinds := 0
	for _, given := range []bool{n.Payload != nil, n.PayloadText != nil, n.PayloadBase64 != nil, n.Tombstone} {
		if given {
			kinds++
		}
	}
	if kinds > 1 {
		bad.Add("payload", "is given more than once: use one of payload, payload_text, payload_base64 and tombstone")
	}
	if n.Tombstone && n.Key == "" {
		bad.Add("key", "is required with tombstone, which deletes the record of its key")
	}
	if n.Priority != nil && (*n.Priority < 0 || *n.Priority > maxPriority) {
		bad.Add("priority", fmt.Sprintf("must be from 0 to %d", maxPriority))
	}
	if _, there := n.Headers[outbox.HeaderPartitionKey]; there {
		bad.Add("headers."+outbox.HeaderPartitionKey, "is reserved; use key")
	}
	if _, there := n.Headers[outbox.HeaderDataRef]; there {
		bad.Add("headers."+outbox.HeaderDataRef, "is reserved; send the payload")
	}
	if _, there := n.Headers[outbox.HeaderPriority]; there && n.Priority != nil {
		bad.Add("headers."+outbox.HeaderPriority, "is also set by priority; use one of them")
	}
	if n.MaxReceive != nil && (*n.MaxReceive < 1 || *n.MaxReceive > subscriptions.MaxMaxReceive) {
		bad.Add("max_receive", fmt.Sprintf("must be from 1 to %d", subscriptions.MaxMaxReceive))
	}
	if _, there := n.Headers[subscriptions.HeaderMaxReceive]; there && n.MaxReceive != nil {
		bad.Add("headers."+subscriptions.HeaderMaxReceive, "is also set by max_receive; use one of them")
	}
	at, problem := n.deliverAt(now)
	switch {
	case n.Delay != "" && n.DeliverAt != nil:
		bad.Add("delay", "and deliver_at are mutually exclusive; use one of them")
	case problem != "":
		bad.Add("delay", problem)
	case at.After(now.Add(schedule.MaxAhead)):
		field := "deliver_at"
		if n.Delay != "" {
			field = "delay"
		}
		bad.Add(field, fmt.Sprintf("must be at most %d days ahead", schedule.MaxAhead/(24*time.Hour)))
	}
	if size := n.size(); size > c.MaxMessageBytes {
		bad.Add("payload", fmt.Sprintf("has %d bytes with key and headers; the maximum is %d", size, c.MaxMessageBytes))
	}
	n.validateEvent(c, &bad, now)
	return bad.OrNil()
}

// validateEvent applies the validation of the outbox.
func (n *NewMessage) validateEvent(c *Config, bad *InvalidError, now time.Time) {
	probe := *n
	if probe.Topic == "" {
		probe.Topic = "x"
	}
	m := probe.message(identity{id: gocql.UUID{15: 1}, createdAt: now}, "", now)
	e := m.Event()
	if c.stores(&e) {
		e.Headers = maps.Clone(e.Headers)
		if e.Headers == nil {
			e.Headers = make(map[string]string)
		}
		e.Headers[outbox.HeaderDataRef], e.Payload = payload.Key(nil, now), nil
	}
	err := e.Validate()
	if err == nil {
		return
	}
	invalid, ok := err.(*outbox.InvalidEventError) //nolint:errorlint // Validate returns it bare
	if !ok {
		bad.Add("", err.Error())
		return
	}
	for _, f := range invalid.Fields {
		problem := f.Problem + ": " + f.Fix
		switch key, isHeader := strings.CutPrefix(f.Field, "Headers["); {
		case isHeader:
			name, err := strconv.Unquote(strings.TrimSuffix(key, "]"))
			if name == outbox.HeaderPartitionKey && n.Headers[name] == "" && err == nil {
				bad.Add("key", f.Problem+": use a short printable key, or omit it to use the message's id")
			} else {
				bad.Add("headers."+name, problem)
			}
		case f.Field == "ContentType":
			bad.Add("content_type", problem)
		case f.Field == "Payload":
			bad.Add("payload", problem)
		case f.Field == "Type": // already reported
		default:
			bad.Add(f.Field, problem)
		}
	}
}

// deliverAt returns the delivery time of a message accepted at now; problem
// describes an invalid delay.
func (n *NewMessage) deliverAt(now time.Time) (at time.Time, problem string) {
	switch {
	case n.DeliverAt != nil:
		return n.DeliverAt.UTC(), ""
	case n.Delay == "":
		return now, ""
	}
	d, ok := n.Delay.Parse()
	if !ok {
		return now, fmt.Sprintf("must be a duration such as 90s, 15m or 36h, with h as the largest unit, of at most %d days", schedule.MaxAhead/(24*time.Hour))
	}
	return now.Add(d), ""
}

// message returns the stored form: with times in milliseconds, rounded up, so
// that it is never early.
func (n *NewMessage) message(id identity, client string, at time.Time) schedule.Message {
	headers := n.Headers
	if n.Priority != nil || n.MaxReceive != nil || len(id.headers) > 0 {
		headers = make(map[string]string, len(n.Headers)+2+len(id.headers))
		maps.Copy(headers, id.headers)
		if n.Headers[outbox.HeaderTraceParent] != "" {
			delete(headers, outbox.HeaderTraceState) // the trace state belongs to the other trace
		}
		maps.Copy(headers, n.Headers) // headers of the message take precedence
		if n.Priority != nil {
			headers[outbox.HeaderPriority] = strconv.Itoa(*n.Priority)
		}
		if n.MaxReceive != nil {
			headers[subscriptions.HeaderMaxReceive] = strconv.Itoa(*n.MaxReceive)
		}
	}
	if up := at.Truncate(time.Millisecond); up.Before(at) {
		at = up.Add(time.Millisecond)
	}
	return schedule.Message{
		ID: id.id, Topic: n.Topic, Key: n.Key, Payload: n.bytes(), ContentType: n.contentType(), Headers: headers,
		Client: client, CreatedAt: id.createdAt, DeliverAt: at.UTC(),
	}
}
