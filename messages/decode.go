package messages

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// syntaxError is what a body that is not one JSON value gives.
type syntaxError struct{ err error }

func (e *syntaxError) Error() string { return "body is not JSON: " + e.err.Error() }

// decodeMessage reads one message. A good one takes a single strict pass; only a
// bad one is taken apart to name all that is wrong with it. The error is a
// *syntaxError or an *InvalidError.
func decodeMessage(body []byte) (NewMessage, error) {
	var n NewMessage
	err := strict(body, &n)
	if err == nil {
		return n, nil
	}
	if !json.Valid(body) {
		return NewMessage{}, &syntaxError{err}
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil || fields == nil {
		return NewMessage{}, &InvalidError{[]FieldError{{"", "must be a JSON object"}}}
	}
	var bad InvalidError
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		target, ok := newField(name)
		switch {
		case !ok:
			bad.add(clip(name), "is not a known field")
		case json.Unmarshal(fields[name], target) != nil:
			bad.add(name, "must be "+wanted[name])
		}
	}
	if bad.Fields == nil { // the strict pass knew better
		bad.add("", err.Error())
	}
	return NewMessage{}, &bad
}

// wanted says what each field must be.
var wanted = map[string]string{
	"topic": "a text", "key": "a text", "payload": "a JSON value", "payload_text": "a text", "payload_base64": "bytes in base64",
	"content_type": "a text", "headers": "an object of texts", "delay": "a text such as 90s", "deliver_at": "a time such as 2027-01-31T08:00:00Z",
	"priority": "a whole number",
}

// newField is something to read the field of that name into.
func newField(name string) (any, bool) {
	t := reflect.TypeFor[NewMessage]()
	for i := range t.NumField() {
		if of, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); of == name {
			return reflect.New(t.Field(i).Type).Interface(), true
		}
	}
	return nil, false
}

// batchBody is the body of a batch.
type batchBody struct {
	Messages []json.RawMessage `json:"messages"`
}

// decodeBatch reads a batch. An item that is no message does not keep the others
// from being stored.
func decodeBatch(body []byte) ([]Item, error) {
	var b batchBody
	if err := strict(body, &b); err != nil {
		if !json.Valid(body) {
			return nil, &syntaxError{err}
		}
		return nil, &InvalidError{[]FieldError{{"", `must be an object such as {"messages": [{"topic": "…"}]}`}}}
	}
	if len(b.Messages) == 0 || len(b.Messages) > MaxBatch {
		return nil, &InvalidError{[]FieldError{{"messages", fmt.Sprintf("must hold from 1 to %d messages; it holds %d", MaxBatch, len(b.Messages))}}}
	}
	items := make([]Item, len(b.Messages))
	for i, raw := range b.Messages {
		items[i].NewMessage, items[i].Err = decodeMessage(raw)
	}
	return items, nil
}

func strict(body []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("it is empty")
		}
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more follows after the JSON object")
	}
	if string(bytes.TrimSpace(body)) == "null" {
		return errors.New("it is null")
	}
	return nil
}

// clip keeps what an error echoes short.
func clip(s string) string {
	if len(s) > 64 {
		return strings.ToValidUTF8(s[:64], "") + "…"
	}
	return s
}
