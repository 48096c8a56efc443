package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
)

// MaxBatch is the most messages that one batch may have.
const MaxBatch = 1000

// PostMessage hands a message in.
func (c *Client) PostMessage(ctx context.Context, m NewMessage, opts ...Option) (Accepted, error) {
	return send[Accepted](ctx, c, http.MethodPost, "/v1/messages", m, opts)
}

// PostMessages hands in up to MaxBatch messages, each stored on its own: the
// results are in the order of ms. The batch is sent again, with its key, while
// any message in it has a problem that time may solve; what was stored is not
// stored twice. After the last attempt the results say what still has one. An
// error is about all of the messages.
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
				return nil // send says what is wrong with it
			}
			for i := range r.Results {
				if p := r.Results[i].Problem; p != nil && again(p) {
					return p
				}
			}
			return nil
		}
	}
	out, err := send[results](ctx, c, http.MethodPost, "/v1/messages/batch", body, append([]Option{unsettled}, opts...))
	return out.Results, err
}

// GetMessage says where a message stands.
func (c *Client) GetMessage(ctx context.Context, id string) (Message, error) {
	return send[Message](ctx, c, http.MethodGet, messagePath(id), nil, nil)
}

// MessageContent says what a message carries; it never changes. Of a message that
// was taken back nothing is kept: that is a *Problem of the type ProblemNoMessage.
func (c *Client) MessageContent(ctx context.Context, id string) (MessageContent, error) {
	return send[MessageContent](ctx, c, http.MethodGet, messagePath(id)+"/content", nil, nil)
}

// ReleaseMessage makes a message that waits due at once. It is then still
// MessageScheduled, can be taken back until it is on its way, and goes out once. A
// *Problem of the type ProblemNotWaiting says in State why there was nothing to
// release; if an answer was lost, it may be that this call has done it.
func (c *Client) ReleaseMessage(ctx context.Context, id string) (Message, error) {
	return send[Message](ctx, c, http.MethodPost, messagePath(id)+"/release", struct{}{}, nil)
}

// CancelMessage takes a message back: after nil it is never published. A
// *Problem of the type ProblemTooLate says that it is out, or about to be.
func (c *Client) CancelMessage(ctx context.Context, id string) error {
	_, err := send[struct{}](ctx, c, http.MethodDelete, messagePath(id), nil, nil)
	return err
}

// ScheduledMessages reads a page of the messages that wait for their time.
// MessagePage.Next, in ScheduledQuery.Cursor, leads to the next.
func (c *Client) ScheduledMessages(ctx context.Context, q ScheduledQuery) (MessagePage, error) {
	return send[MessagePage](ctx, c, http.MethodGet, "/v1/messages?"+q.values().Encode(), nil, nil)
}

func messagePath(id string) string { return "/v1/messages/" + url.PathEscape(id) }
