package messages

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
)

// form bounds the structure of a message. The outbox validates its headers; its
// payload is free, nested at most as deep as consumers with the lowest defaults
// accept.
var form = jsonform.Bounds{Depth: 3, Members: 64, Items: 16, Free: "payload", FreeDepth: 64}

// decodeMessage reads one message. The error is a *jsonform.SyntaxError or an
// *InvalidError with every unknown field and every field of the wrong type.
func decodeMessage(body []byte) (NewMessage, error) {
	if err := jsonform.Check(body, form); err != nil {
		return NewMessage{}, err
	}
	n, err := jsonform.Decode(body, explainMessage, nil)
	for _, v := range n.Headers {
		if v == "" && err == nil {
			return n, noNull(body)
		}
	}
	return n, err
}

// noNull rejects null headers, which decode like an empty string.
func noNull(body []byte) error {
	var n struct {
		Headers map[string]*string `json:"headers"`
	}
	if err := json.Unmarshal(body, &n); err != nil {
		return err // it was read before
	}
	var bad InvalidError
	for _, name := range slices.Sorted(maps.Keys(n.Headers)) {
		if n.Headers[name] == nil {
			bad.Add("headers."+name, "must be "+jsonform.WantText)
		}
	}
	return bad.OrNil()
}

func explainMessage(fields map[string]json.RawMessage, bad *InvalidError) NewMessage {
	var n NewMessage
	jsonform.Take(fields, bad, "", "topic", jsonform.WantText, &n.Topic)
	jsonform.Take(fields, bad, "", "key", jsonform.WantText, &n.Key)
	jsonform.Take(fields, bad, "", "payload", "a JSON value", &n.Payload)
	jsonform.Take(fields, bad, "", "payload_text", jsonform.WantText, &n.PayloadText)
	jsonform.Take(fields, bad, "", "payload_base64", "bytes in base64", &n.PayloadBase64)
	jsonform.Take(fields, bad, "", "tombstone", "true or false", &n.Tombstone)
	jsonform.Take(fields, bad, "", "content_type", jsonform.WantText, &n.ContentType)
	jsonform.Take(fields, bad, "", "headers", "an object of texts", &n.Headers)
	jsonform.Take(fields, bad, "", "delay", "a string such as 90s", &n.Delay)
	jsonform.Take(fields, bad, "", "deliver_at", "a time with an offset, such as 2027-01-31T08:00:00Z or 2027-01-31T09:00:00+01:00, without a leap second", &n.DeliverAt)
	jsonform.Take(fields, bad, "", "priority", "a whole number", &n.Priority)
	jsonform.Take(fields, bad, "", "max_receive", "a whole number", &n.MaxReceive)
	jsonform.Rest(fields, bad, "")
	return n
}

// decodeBatch reads a batch. An invalid item does not affect the others.
func decodeBatch(body []byte) ([]Item, error) {
	raw, err := jsonform.List(body, "messages", MaxBatch)
	if err != nil {
		return nil, err
	}
	items := make([]Item, len(raw))
	for i := range raw {
		items[i].NewMessage, items[i].Err = decodeMessage(raw[i])
	}
	return items, nil
}
