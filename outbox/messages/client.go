// Package messages is a Go client of the API of messages: they are published to a topic without
// a table, now or later.
package messages

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"github.com/scylla-outbox/scylla-outbox/outbox/api"
	"github.com/scylla-outbox/scylla-outbox/outbox/internal/rest"
)

// Client accesses a service for messages, such as &Client{URL: "http://127.0.0.1:8080"}. It
// has the fields, retries and errors of api.Client. It is safe for concurrent use.
type Client api.Client

// Problem types of the API, for errors.Is.
const (
	// ErrTooLate: the message is released or published, and cannot be cancelled.
	ErrTooLate api.Type = "urn:scylla-outbox:problem:message-too-late"
	// ErrNotWaiting: the message is not waiting. See StateOf.
	ErrNotWaiting api.Type = "urn:scylla-outbox:problem:message-not-waiting"
	// ErrQuota: the quota of the caller is used up.
	ErrQuota api.Type = "urn:scylla-outbox:problem:quota-used-up"
)

// StateOf returns the state of the message that is the reason of a refusal; empty if err has
// none.
func StateOf(err error) State {
	var document struct {
		State State `json:"state"`
	}
	if p, ok := errors.AsType[*api.Problem](err); ok {
		_ = json.Unmarshal(p.Document, &document) // a response of a proxy has none
	}
	return document.State
}

// MaxBatch is the most messages that one batch may have.
const MaxBatch = 1000

// Post submits a message.
func (c *Client) Post(ctx context.Context, m NewMessage, opts ...api.Option) (Accepted, error) {
	return rest.Send[Accepted](ctx, (*api.Client)(c), http.MethodPost, "/v1/messages", m, opts...)
}

// PostBatch submits up to MaxBatch messages, each stored separately; the
// results have the order of ms. It retries the batch, with its key, while any
// message has a transient problem; stored messages are not stored twice. After
// the last attempt the results contain the remaining problems. An error applies
// to all messages.
func (c *Client) PostBatch(ctx context.Context, ms []NewMessage, opts ...api.Option) ([]Result, error) {
	body := struct {
		Messages []NewMessage `json:"messages"`
	}{ms}
	type results struct {
		Results []Result `json:"results"`
	}
	unsettled := func(answer []byte) error {
		var r results
		if json.Unmarshal(answer, &r) != nil {
			return nil // SendUntil reports the decoding error
		}
		for i := range r.Results {
			if p := r.Results[i].Problem; p != nil && rest.Retryable(p) {
				return p
			}
		}
		return nil
	}
	out, err := rest.SendUntil[results](ctx, (*api.Client)(c), http.MethodPost, "/v1/messages/batch", body, unsettled, opts...)
	return out.Results, err
}

// Get returns the state of a message.
func (c *Client) Get(ctx context.Context, id string) (Message, error) {
	return rest.Send[Message](ctx, (*api.Client)(c), http.MethodGet, messagePath(id), nil)
}

// Content returns the content of a message; it never changes. The content of a cancelled
// message is not kept: the error is api.ErrNotFound.
func (c *Client) Content(ctx context.Context, id string) (Content, error) {
	return rest.Send[Content](ctx, (*api.Client)(c), http.MethodGet, messagePath(id)+"/content", nil)
}

// DeliverNow makes a waiting message due immediately. It is then still Scheduled, can be
// cancelled until it is in the outbox, and is published once. ErrNotWaiting means that the
// message is not waiting; after a lost response this may be the effect of this call.
func (c *Client) DeliverNow(ctx context.Context, id string) (Message, error) {
	return rest.Send[Message](ctx, (*api.Client)(c), http.MethodPost, messagePath(id)+"/deliver-now", struct{}{})
}

// Cancel cancels a message: after nil it is never published. ErrTooLate means that it is
// released or published.
func (c *Client) Cancel(ctx context.Context, id string) error {
	_, err := rest.Send[struct{}](ctx, (*api.Client)(c), http.MethodDelete, messagePath(id), nil)
	return err
}

// Scheduled returns a page of the waiting messages. Page.Next is
// the Query.Cursor of the next page.
func (c *Client) Scheduled(ctx context.Context, q Query) (Page, error) {
	return rest.Send[Page](ctx, (*api.Client)(c), http.MethodGet, "/v1/messages?"+q.values().Encode(), nil)
}

func messagePath(id string) string { return "/v1/messages/" + url.PathEscape(id) }
