package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
)

// MaxBatch is the most messages that one batch may have.
const MaxBatch = 1000

// PostMessage submits a message.
func (c *Client) PostMessage(ctx context.Context, m NewMessage, opts ...Option) (Accepted, error) {
	return send[Accepted](ctx, c, http.MethodPost, "/v1/messages", m, opts)
}

// PostMessages submits up to MaxBatch messages, each stored separately; the
// results have the order of ms. It retries the batch, with its key, while any
// message has a transient problem; stored messages are not stored twice. After
// the last attempt the results contain the remaining problems. An error applies
// to all messages.
func (c *Client) PostMessages(ctx context.Context, ms []NewMessage, opts ...Option) ([]MessageResult, error) {
	body := struct {
		Messages []NewMessage `json:"messages"`
	}{ms}
	type results struct {
		Results []MessageResult `json:"results"`
	}
	unsettled := func(c *call) {
		c.unsettled = func(answer []byte) error {
			var r results
			if json.Unmarshal(answer, &r) != nil {
				return nil // send reports the decoding error
			}
			for i := range r.Results {
				if p := r.Results[i].Problem; p != nil && retryable(p) {
					return p
				}
			}
			return nil
		}
	}
	out, err := send[results](ctx, c, http.MethodPost, "/v1/messages/batch", body, append([]Option{unsettled}, opts...))
	return out.Results, err
}

// GetMessage returns the state of a message.
func (c *Client) GetMessage(ctx context.Context, id string) (Message, error) {
	return send[Message](ctx, c, http.MethodGet, messagePath(id), nil, nil)
}

// MessageContent returns the content of a message; it never changes. The
// content of a cancelled message is not kept: the error is a *Problem of the
// type ProblemNoMessage.
func (c *Client) MessageContent(ctx context.Context, id string) (MessageContent, error) {
	return send[MessageContent](ctx, c, http.MethodGet, messagePath(id)+"/content", nil, nil)
}

// DeliverMessageNow makes a waiting message due immediately. It is then still
// MessageScheduled, can be cancelled until it is in the outbox, and is
// published once. A *Problem of the type ProblemNotWaiting has the State of a
// message that is not waiting; after a lost response this may be the effect of
// this call.
func (c *Client) DeliverMessageNow(ctx context.Context, id string) (Message, error) {
	return send[Message](ctx, c, http.MethodPost, messagePath(id)+"/deliver-now", struct{}{}, nil)
}

// CancelMessage cancels a message: after nil it is never published. A *Problem
// of the type ProblemTooLate means that it is released or published.
func (c *Client) CancelMessage(ctx context.Context, id string) error {
	_, err := send[struct{}](ctx, c, http.MethodDelete, messagePath(id), nil, nil)
	return err
}

// ScheduledMessages returns a page of the waiting messages. MessagePage.Next is
// the ScheduledQuery.Cursor of the next page.
func (c *Client) ScheduledMessages(ctx context.Context, q ScheduledQuery) (MessagePage, error) {
	return send[MessagePage](ctx, c, http.MethodGet, "/v1/messages?"+q.values().Encode(), nil, nil)
}

func messagePath(id string) string { return "/v1/messages/" + url.PathEscape(id) }
