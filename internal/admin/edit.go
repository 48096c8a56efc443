package admin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// maxEdit bounds the body of an edit: a payload of a megabyte in base64, and headers.
const maxEdit = 4 << 20

type editInput struct {
	EventID string `path:"event_id" format:"uuid"`
	httpapi.Precondition
	Body EditBody
}

// EditBody is the request of an edit.
type EditBody struct {
	PayloadText   *string            `json:"payload_text,omitempty" doc:"New payload as text; without payload_text and payload_base64 it is unchanged"`
	PayloadBase64 *string            `json:"payload_base64,omitempty" doc:"New payload as base64"`
	ContentType   *string            `json:"content_type,omitempty" maxLength:"500" doc:"Unchanged if absent"`
	Headers       *map[string]string `json:"headers,omitempty" doc:"Replaces all headers; unchanged if absent"`
	DryRun        bool               `json:"dry_run,omitempty" doc:"Return the differences and the problems without changing anything"`
}

type editOutput struct {
	ETag string `header:"ETag" doc:"Version of the dead letter"`
	Body EditedBody
}

// EditedBody is the result of an edit.
type EditedBody struct {
	DryRun   bool           `json:"dry_run"`
	Diff     dlq.Difference `json:"diff"`
	Problems []string       `json:"problems" doc:"Why the edited event cannot be published; only for a dry run, otherwise the error contains them"`
	Schema   bool           `json:"schema" doc:"The event type has a JSON Schema, and the payload was validated against it"`
	NewID    string         `json:"new_event_id,omitempty" format:"uuid" doc:"Id of the event that is published instead of the original"`
}

func (ep *actionEndpoints) registerEdit() {
	huma.Register(ep.api, ep.describeChange(access.Admin, false, huma.Operation{
		OperationID: "edit-dead-letter", Method: http.MethodPost, Path: "/v1/dead-letters/{event_id}/edit", MaxBodyBytes: maxEdit,
		Summary:     "Edit payload or headers and publish the result under a new id",
		Description: "The dead letter keeps the original event. An edit can be edited again until it is published.",
	}, 404, 409, 412, 428), ep.edit)
}

// content returns the content of the dead letter after the edit.
func (b *EditBody) content(ctx context.Context, l *dlq.DeadLetter) (dlq.Edit, error) {
	e := l.Content()
	switch {
	case b.PayloadText != nil && b.PayloadBase64 != nil:
		return e, invalid(ctx, "body.payload_base64", "send the payload as text or as base64, not both")
	case b.PayloadText != nil:
		e.Payload = []byte(*b.PayloadText)
	case b.PayloadBase64 != nil:
		p, err := base64.StdEncoding.DecodeString(*b.PayloadBase64)
		if err != nil {
			return e, invalid(ctx, "body.payload_base64", err.Error())
		}
		e.Payload = p
	}
	if b.ContentType != nil {
		e.ContentType = *b.ContentType
	}
	if b.Headers != nil {
		e.Headers = *b.Headers
	}
	return e, nil
}

func (ep *actionEndpoints) edit(ctx context.Context, in *editInput) (*editOutput, error) {
	id, err := eventID(ctx, "path.event_id", in.EventID)
	if err != nil {
		return nil, err
	}
	if in.IfMatch == "" {
		return nil, newProblem(ctx, httpapi.TypeNeedsMatch, "The version of the dead letter is missing: send its ETag as If-Match.")
	}
	version, err := ep.expectedVersion(ctx, id, in.IfMatch)
	if err != nil {
		return nil, err
	}
	l, err := ep.store.Read(ctx, id)
	if err == nil && version != 0 && version != l.Version {
		err = &dlq.VersionError{EventID: id, Want: version, Have: l.Version}
	}
	if err == nil {
		err = ep.store.Check(dlq.ActionEdit, &l)
	}
	if err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	content, err := in.Body.content(ctx, &l)
	if err != nil {
		return nil, err
	}
	out := new(editOutput)
	out.ETag, out.Body.Problems = etag(l.Version), ep.wrong(ctx, &l, &content)
	out.Body.DryRun, out.Body.Diff, out.Body.Schema = in.Body.DryRun, dlq.Diff(l.Content(), content), ep.schemas.Has(l.EventType)
	if in.Body.DryRun {
		return out, nil
	}
	if len(out.Body.Problems) > 0 {
		p := newProblem(ctx, httpapi.TypeInvalid, "The edited event cannot be published; see errors.")
		for _, text := range out.Body.Problems {
			p.Errors = append(p.Errors, &huma.ErrorDetail{Location: "body", Message: text})
		}
		return nil, p
	}
	detail, err := json.Marshal(map[string]any{"changed": out.Body.Diff.ChangedParts()})
	if err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	err = ep.audit.change(ctx, entry{Action: string(dlq.ActionEdit), Target: id.String(), Detail: string(detail)}, func(ctx context.Context, by dlq.Actor) (string, error) {
		var made gocql.UUID
		made, err := ep.store.Edit(ctx, id, content, by, l.Version)
		out.Body.NewID = made.String()
		return "", err
	})
	if errors.Is(err, dlq.ErrInvalidEdit) {
		return nil, invalid(ctx, "body", err.Error())
	}
	if err != nil {
		return nil, ep.toProblem(ctx, err, true)
	}
	ep.changes.recordChanged(id)
	if l, err = ep.store.Read(ctx, id); err != nil {
		return nil, ep.toProblem(ctx, err, true)
	}
	out.ETag = etag(l.Version)
	return out, nil
}

// wrong returns the reasons why an edit cannot be published. It sets the header with the schema
// of the topic that the payload fits.
func (ep *actionEndpoints) wrong(ctx context.Context, l *dlq.DeadLetter, e *dlq.Edit) []string {
	out := []string{}
	if err := e.Fits(l); err != nil {
		out = append(out, err.Error())
	}
	var schema *dlq.SchemaError
	if err := ep.schemas.Validate(l.EventType, e.Payload); errors.As(err, &schema) {
		out = append(out, schema.Problems...)
	} else if err != nil {
		out = append(out, err.Error())
	}
	if !e.Equal(l.Content()) {
		headers, err := ep.deadLetters.registry.CheckEdited(ctx, l.Topic, e.Payload, e.Headers)
		if err != nil {
			out = append(out, "the payload "+err.Error())
		}
		e.Headers = headers
	}
	return out
}
