package messages

import (
	"context"
	"net/http"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
)

// RegisterKept adds the operations on submitted messages to the operators' API: read a
// message and its content, list waiting messages with their clients, deliver or cancel
// one.
func (a *API) RegisterKept(h huma.API) { a.registerKept(h, true) }

// registerKept adds the operations on submitted messages. Only operators see the clients,
// which can be addresses.
func (a *API) registerKept(h huma.API, operators bool) {
	huma.Register(h, huma.Operation{
		OperationID: "get-message", Method: http.MethodGet, Path: "/v1/messages/{id}",
		Summary: "Get the state of a message", Responses: problems(h, 404, 422, 429, 503),
	}, a.get)
	huma.Register(h, huma.Operation{
		OperationID: "get-message-content", Method: http.MethodGet, Path: "/v1/messages/{id}/content",
		Summary:     "Get the content of a message",
		Description: "Payload, media type and headers; they never change. 404 also for a cancelled message, whose payload is not kept.",
		Responses:   problems(h, 404, 422, 429, 503),
	}, a.content)
	huma.Register(h, huma.Operation{
		OperationID: "deliver-message-now", Method: http.MethodPost, Path: "/v1/messages/{id}/deliver-now",
		Summary: "Deliver a message that waits now, ahead of its time",
		Description: "The message becomes due immediately and is published once, like every due message. It can be cancelled until it is in the outbox. " +
			"A message that is already due is returned unchanged. 409: the message is not waiting; state contains its state.",
		Responses: problems(h, 403, 404, 409, 415, 422, 429, 503),
	}, a.deliverNow)
	huma.Register(h, huma.Operation{
		OperationID: "cancel-message", Method: http.MethodDelete, Path: "/v1/messages/{id}", DefaultStatus: http.StatusNoContent,
		Summary:     "Cancel a message",
		Description: "204: it is never published. 409: it is too late; a message that was not for later always is.",
		Responses:   problems(h, 403, 404, 409, 422, 429, 503),
	}, a.cancel)
	huma.Register(h, huma.Operation{
		OperationID: "list-messages", Method: http.MethodGet, Path: "/v1/messages",
		Summary: "List the messages that wait for their time", Description: "The next to be delivered first.", Responses: problems(h, 422, 429, 503),
	}, func(ctx context.Context, in *listInput) (*listOutput, error) { return a.list(ctx, in, operators) })
	addExamples(h.OpenAPI())
}

type contentBody struct {
	ContentType   string            `json:"content_type"`
	Headers       map[string]string `json:"headers,omitempty"`
	PayloadText   *string           `json:"payload_text,omitempty" doc:"The payload, if it is UTF-8; a tombstone has neither payload_text nor payload_base64"`
	PayloadBase64 *[]byte           `json:"payload_base64,omitempty" doc:"The payload, if it is not"`
	PayloadBytes  int               `json:"payload_bytes"`
}

type contentOutput struct{ Body contentBody }

func (a *API) content(ctx context.Context, in *idInput) (*contentOutput, error) {
	id, err := parseID(in.ID)
	if err != nil {
		return nil, err
	}
	c, err := a.service.Content(ctx, id)
	if err != nil {
		return nil, a.fail(ctx, "get-message-content", err, id, false)
	}
	b := contentBody{ContentType: c.ContentType, Headers: c.Headers, PayloadBytes: len(c.Payload)}
	switch {
	case c.Payload == nil:
	case utf8.Valid(c.Payload):
		text := string(c.Payload)
		b.PayloadText = &text
	default:
		b.PayloadBase64 = &c.Payload
	}
	return &contentOutput{b}, nil
}

func (a *API) deliverNow(ctx context.Context, in *idInput) (*messageOutput, error) {
	id, err := parseID(in.ID)
	if err != nil {
		return nil, err
	}
	v, err := a.service.DeliverNow(ctx, id)
	if err != nil {
		p := a.fail(ctx, "deliver-message-now", err, id, false)
		if p.OutcomeUnknown {
			p.Detail = "It is unknown whether the message is due now; retry."
		}
		return nil, p
	}
	return &messageOutput{newMessageBody(&v)}, nil
}
