package subscriptions

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/scylla-outbox/scylla-outbox/outbox/api"
	"github.com/scylla-outbox/scylla-outbox/outbox/internal/rest"
	"github.com/scylla-outbox/scylla-outbox/outbox/payload"
)

// MaxReceipts is the maximum number of receipts of one call.
const MaxReceipts = 1000

// Problem types of the API, for errors.Is.
const (
	// ErrLeaseExpired: the lease of a delivery has ended, and its message is delivered again.
	ErrLeaseExpired api.Type = "urn:scylla-outbox:problem:lease-expired"
	// ErrInvalidReceipt: a receipt is of no delivery of the subscription.
	ErrInvalidReceipt api.Type = "urn:scylla-outbox:problem:invalid-receipt"
)

// Delivery is a message of a subscription that is leased to this consumer.
type Delivery struct {
	// Receipt names the delivery for Ack, Nack, Extend, Reject and Release. Empty with
	// AutoAck.
	Receipt string `json:"receipt"`
	// Attempt counts the deliveries of the message, from 1. After MaxReceive failed ones
	// it becomes a dead letter.
	Attempt    int `json:"attempt"`
	MaxReceive int `json:"max_receive"`
	// LeaseUntil is the end of the lease by the server's clock.
	LeaseUntil time.Time `json:"lease_until"`

	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	At        time.Time `json:"at"`
	Key       string    `json:"key"`
	// KeyBase64 is the key if it is not UTF-8, or is empty and not null; see RecordKey.
	KeyBase64 []byte `json:"key_base64,omitzero"`
	// EventID identifies the event: a consumer that sees it again has applied it.
	EventID       string            `json:"event_id"`
	EventType     string            `json:"event_type"`
	AggregateID   string            `json:"aggregate_id"`
	AggregateType string            `json:"aggregate_type"`
	Sequence      int64             `json:"sequence"`
	Time          string            `json:"time"`
	ContentType   string            `json:"content_type"`
	Headers       map[string]string `json:"headers"`
	// RecordHeaders are all headers of the record, in its order. They are present if Headers and
	// the fields above do not represent them exactly: a name is repeated, a value is missing or
	// not UTF-8.
	RecordHeaders []RecordHeader `json:"record_headers,omitzero"`
	// One of Data, DataText and DataBase64 is the payload, none for a record without a value (a
	// tombstone); beside DataBase64, Data is the payload decoded by its schema. See Payload.
	Data       json.RawMessage `json:"data,omitempty"`
	DataText   *string         `json:"data_text,omitempty"`
	DataBase64 []byte          `json:"data_base64,omitzero"`
}

// RecordHeader is a header of a record. One of Name and NameBase64 is its name. Value is nil for
// a header without one.
type RecordHeader struct {
	Name       string `json:"name,omitempty"`
	NameBase64 []byte `json:"name_base64,omitzero"`
	Value      []byte `json:"value_base64"`
}

// RecordKey returns the bytes of the key; nil for a record without one.
func (d *Delivery) RecordKey() []byte {
	if d == nil {
		return nil
	}
	if d.KeyBase64 != nil || d.Key == "" {
		return d.KeyBase64
	}
	return []byte(d.Key)
}

// Payload returns the bytes of the payload; nil for a record without a value.
func (d *Delivery) Payload() []byte {
	switch {
	case d == nil:
		return nil
	case d.DataBase64 != nil: // beside data that is decoded by its schema
		return d.DataBase64
	case d.Data != nil:
		return d.Data
	case d.DataText != nil:
		return []byte(*d.DataText)
	}
	return nil
}

// Load replaces the payload by the one that the header payload.Header refers to, and
// removes the header, once size and SHA-256 are verified. Without a reference, or
// without a store, it changes nothing. Errors name the event and the reference.
// One with payload.ErrNotFound or payload.ErrDamaged in its chain does not end by a
// repetition.
func (d *Delivery) Load(ctx context.Context, s payload.Store) error {
	if d == nil || s == nil {
		return nil
	}
	key, ok := d.Headers[payload.Header]
	if !ok {
		return nil
	}
	content, err := payload.Load(ctx, s, key)
	if err != nil {
		return fmt.Errorf("event %s: %w", d.EventID, err)
	}
	d.Data, d.DataText, d.DataBase64 = nil, nil, content
	delete(d.Headers, payload.Header)
	return nil
}

// ReceiveOptions are the options of Receive; the zero value receives up to 10 messages
// without waiting.
type ReceiveOptions struct {
	// Max is the maximum number of messages, up to 1,000. Default 10.
	Max int
	// MaxPerKey is the maximum number of consecutive messages of one key, a run, up to 1,000.
	// Process and settle a run in its order: Nack, Reject and Release of one message, and the
	// end of the lease, return the later ones. Extend of one extends the run. Default 1.
	MaxPerKey int
	// Wait is the time to wait for the first message, up to 20 s.
	Wait time.Duration
	// AutoAck acknowledges the messages before they are returned: delivery is then at
	// most once.
	AutoAck bool
	// VisibilityTimeout is the duration of the leases. Default: that of the subscription.
	VisibilityTimeout time.Duration
	// Consumer names this consumer in leases and status, behind the name of its token or, without
	// tokens, its address: up to 100 letters, digits and ".", "_", ":", "@", "-", such as its host
	// or pod.
	Consumer string
}

// Codes of a SettleResult. Only ResultUnknown and ResultUnavailable may be retried with the
// same receipt.
const (
	ResultOK           = "ok"
	ResultLeaseExpired = "lease_expired"
	ResultOutOfOrder   = "out_of_order"
	ResultInvalid      = "invalid_receipt"
	ResultUnknown      = "unknown"
	ResultUnavailable  = "unavailable"
)

// SettleResult is the result of an action for one receipt.
type SettleResult struct {
	// Code is ResultOK if the action is durable.
	Code string `json:"code"`
	// Error is the reason of other codes.
	Error string `json:"error"`
	// LeaseUntil is the new end of the lease after Extend, by the server's clock.
	LeaseUntil time.Time `json:"lease_until"`
}

// Settling is an action for one receipt.
type Settling struct {
	Receipt string
	// Delay is the time until the next delivery after Nack (0: the backoff of the
	// subscription) and the new duration of the lease after Extend (0: the visibility
	// timeout of the subscription).
	Delay time.Duration
	// Reason is the error of the consumer for Nack and Reject, up to 2,000 bytes.
	Reason string
	// Details are the details of Reason, such as a stack, up to 16,384 bytes. A dead letter has
	// the details of the last failure.
	Details string
}

// MarshalJSON writes the delay as the API reads it.
func (s Settling) MarshalJSON() ([]byte, error) {
	out := struct {
		Receipt string `json:"receipt"`
		Delay   string `json:"delay,omitempty"`
		Reason  string `json:"reason,omitempty"`
		Details string `json:"details,omitempty"`
	}{Receipt: s.Receipt, Reason: s.Reason, Details: s.Details}
	if s.Delay != 0 {
		out.Delay = s.Delay.String()
	}
	return json.Marshal(out)
}

func subscriptionPath(name, operation string) string {
	return "/v1/subscriptions/" + url.PathEscape(name) + "/" + operation
}

// Receive returns messages of a subscription with leases. No messages within Wait is no
// error.
func (c *Client) Receive(ctx context.Context, name string, o ReceiveOptions) ([]Delivery, error) {
	body := struct {
		Max               int    `json:"max,omitempty"`
		MaxPerKey         int    `json:"max_per_key,omitempty"`
		Wait              string `json:"wait,omitempty"`
		AutoAck           bool   `json:"auto_ack,omitempty"`
		VisibilityTimeout string `json:"visibility_timeout,omitempty"`
		Consumer          string `json:"consumer,omitempty"`
	}{Max: o.Max, MaxPerKey: o.MaxPerKey, AutoAck: o.AutoAck, Consumer: o.Consumer}
	if o.Wait > 0 {
		body.Wait = o.Wait.String()
	}
	if o.VisibilityTimeout > 0 {
		body.VisibilityTimeout = o.VisibilityTimeout.String()
	}
	out, err := rest.Send[struct {
		Messages []Delivery `json:"messages"`
	}](ctx, (*api.Client)(c), http.MethodPost, subscriptionPath(name, "receive"), body)
	return out.Messages, err
}

// Ack acknowledges deliveries: their messages are not delivered again. The error is nil only
// if every result is ResultOK. Results that may change are retried. With the last error the
// results contain the known ones, if any.
func (c *Client) Ack(ctx context.Context, name string, receipts ...string) ([]SettleResult, error) {
	return c.settle(ctx, name, "ack", map[string]any{"receipts": receipts})
}

// Release returns messages, whose deliveries then do not count. See Ack for the result.
func (c *Client) Release(ctx context.Context, name string, receipts ...string) ([]SettleResult, error) {
	return c.settle(ctx, name, "release", map[string]any{"receipts": receipts})
}

// Nack reports failed deliveries. See Ack for the result.
func (c *Client) Nack(ctx context.Context, name string, items ...Settling) ([]SettleResult, error) {
	return c.settle(ctx, name, "nack", map[string]any{"items": items})
}

// Extend sets the ends of leases to Settling.Delay from now. See Ack for the result.
func (c *Client) Extend(ctx context.Context, name string, items ...Settling) ([]SettleResult, error) {
	return c.settle(ctx, name, "extend", map[string]any{"items": items})
}

// Reject makes messages dead letters. See Ack for the result.
func (c *Client) Reject(ctx context.Context, name string, items ...Settling) ([]SettleResult, error) {
	return c.settle(ctx, name, "reject", map[string]any{"items": items})
}

func (c *Client) settle(ctx context.Context, name, action string, body any) ([]SettleResult, error) {
	out, err := rest.Send[struct {
		Results []SettleResult `json:"results"`
	}](ctx, (*api.Client)(c), http.MethodPost, subscriptionPath(name, action), body)
	if p, ok := errors.AsType[*api.Problem](err); ok {
		_ = json.Unmarshal(p.Document, &out) // a response of a proxy has none
	}
	return out.Results, err
}
