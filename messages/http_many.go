package messages

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/jsonform"
	"github.com/scylla-outbox/scylla-outbox/schedule"
)

// RegisterMany adds bulk operations on waiting messages to the operators' API:
// deliver or cancel them.
func (a *API) RegisterMany(h huma.API) {
	const how = " A dry run counts up to 20,000 messages and changes nothing. A request changes up to 1,000 messages, or with a rate those of ten seconds: " +
		"repeat it with next as cursor until next is absent. Repeating a request is harmless. After 503 retry with the same cursor."
	audited := func() map[string]any { return map[string]any{httpapi.AuditBody: true} }
	huma.Register(h, huma.Operation{
		OperationID: "deliver-messages-now", Method: http.MethodPost, Path: "/v1/messages/deliver-now", Metadata: audited(),
		Summary:     "Deliver many messages that wait now, ahead of their time",
		Description: "Messages that match the filter and are not due yet become due immediately, and are published at the rate of the scheduler. Each can be cancelled until it is in the outbox." + how,
		Responses:   problems(h, 400, 403, 415, 422, 429, 503),
	}, a.deliverManyNow)
	huma.Register(h, huma.Operation{
		OperationID: "cancel-messages", Method: http.MethodPost, Path: "/v1/messages/cancel", Metadata: audited(),
		Summary:     "Cancel many waiting messages",
		Description: "Messages that match the filter are never published, and their payloads are deleted immediately. This cannot be undone." + how,
		Responses:   problems(h, 400, 403, 415, 422, 429, 503),
	}, a.cancelMany)
	addExamples(h.OpenAPI())
}

// ManyFilter selects waiting messages in a request of an operator. Zero members select all.
type ManyFilter struct {
	Topic        string    `json:"topic,omitempty" maxLength:"249" doc:"Messages for this topic"`
	Key          string    `json:"key,omitempty" maxLength:"500" doc:"Messages with this key"`
	Client       string    `json:"client,omitempty" maxLength:"300" doc:"Messages of this client: the name of a token, or the word address and the address"`
	Since        time.Time `json:"since,omitzero" doc:"Messages due at this time or later"`
	Until        time.Time `json:"until,omitzero" doc:"Messages due before this time"`
	CreatedSince time.Time `json:"created_since,omitzero" doc:"Messages submitted at this time or later"`
	CreatedUntil time.Time `json:"created_until,omitzero" doc:"Messages submitted before this time; set it to the time of the dry run to exclude later ones"`
}

// ManyBody is the request of a bulk change, or of a dry run of it.
type ManyBody struct {
	Filter ManyFilter `json:"filter" doc:"Which: at least one member"`
	Limit  int        `json:"limit,omitempty" minimum:"1" maximum:"1000" doc:"Maximum number of changes of this request; default 1,000"`
	Rate   float64    `json:"rate,omitempty" minimum:"0.1" maximum:"100000" doc:"Maximum number of changes per second; default unlimited"`
	Cursor string     `json:"cursor,omitempty" maxLength:"200" doc:"next of the answer before, with the same filter; only its times may differ"`
	DryRun bool       `json:"dry_run,omitempty" doc:"Only count them"`
}

type manyInput struct{ Body ManyBody }

// many returns the filter of the request.
func (in *manyInput) many(now time.Time, due bool) (Many, error) {
	b := &in.Body
	if b.Filter == (ManyFilter{}) {
		return Many{}, jsonform.Invalid("filter", "must have topic, key, client, since, until, created_since or created_until")
	}
	at := ""
	if b.Cursor != "" {
		var ok bool
		if at, ok = httpapi.Position(b.Cursor, b.Filter.texts()...); !ok {
			return Many{}, jsonform.Invalid("cursor", httpapi.ProblemCursor)
		}
	}
	return b.Filter.many(now, due, at, "filter.since", "cursor")
}

// texts are the members beside the times, for the cursor.
func (f *ManyFilter) texts() []string { return []string{f.Topic, f.Key, f.Client} }

// many returns the selection that begins at the position, if there is one. from and at are the
// parts of the request with the time Since and the cursor.
func (f *ManyFilter) many(now time.Time, due bool, position, from, at string) (Many, error) {
	m := Many{
		Filter: schedule.Filter{Until: f.Until, Topic: f.Topic, Key: f.Key, Client: f.Client, CreatedSince: f.CreatedSince, CreatedUntil: f.CreatedUntil},
		After:  schedule.Position{DeliverAt: f.Since}, Due: due,
	}
	if f.Since.IsZero() {
		m.After.DeliverAt = now.Add(-schedule.MaxAhead)
	}
	if f.Until.IsZero() {
		m.Until = now.Add(schedule.MaxAhead + time.Minute)
	}
	if m.Until.Sub(m.After.DeliverAt) > 3*schedule.MaxAhead {
		return Many{}, jsonform.Invalid(from, "must be at most three years before until")
	}
	if position != "" {
		var ok bool
		if m.After, ok = parsePosition(position); !ok {
			return Many{}, jsonform.Invalid(at, httpapi.ProblemCursor)
		}
		if m.Until.Sub(m.After.DeliverAt) > 3*schedule.MaxAhead { // the search would go through many empty months
			return Many{}, jsonform.Invalid(at, "must be next of a previous response with this filter")
		}
	}
	return m, nil
}

// ManyResultBody is the response to a bulk change.
type ManyResultBody struct {
	DryRun  bool     `json:"dry_run"`
	Preview Tally    `json:"preview" doc:"Matching messages; for a change, the processed ones"`
	Result  *Changed `json:"result,omitempty" doc:"Result of the change; absent for a dry run"`
	Next    string   `json:"next,omitempty" doc:"Cursor of the next request; absent if no messages follow"`
}

type manyOutput struct{ Body ManyResultBody }

func (a *API) deliverManyNow(ctx context.Context, in *manyInput) (*manyOutput, error) {
	return a.changeMany(ctx, "deliver-messages-now", "made due", in, false, a.service.DeliverManyNow)
}

func (a *API) cancelMany(ctx context.Context, in *manyInput) (*manyOutput, error) {
	return a.changeMany(ctx, "cancel-messages", "cancelled", in, true, a.service.CancelMany)
}

func (a *API) changeMany(
	ctx context.Context, operation, changed string, in *manyInput, due bool,
	change func(context.Context, Many, int, float64) (Tally, Changed, Rest, error),
) (*manyOutput, error) {
	many, err := in.many(a.service.cfg.Clock.Now(), due)
	if err != nil {
		return nil, a.fail(ctx, operation, err, gocql.UUID{}, false)
	}
	out := new(manyOutput)
	var done Changed
	var rest Rest
	if out.Body.DryRun = in.Body.DryRun; out.Body.DryRun {
		out.Body.Preview, rest, err = a.service.Count(ctx, many)
	} else {
		limit := in.Body.Limit
		if limit == 0 {
			limit = MaxMany
		}
		out.Body.Preview, done, rest, err = change(ctx, many, limit, in.Body.Rate)
		out.Body.Result = &done
	}
	if err != nil {
		p := a.fail(ctx, operation, err, gocql.UUID{}, false)
		why := ""
		switch {
		case in.Body.DryRun:
		case errors.As(err, new(*UnavailableError)):
			why = "The database cannot be reached."
		case p.Status == httpapi.StatusHungUp: // for the audit trail
			why = "The client has disconnected."
		}
		if why != "" {
			p.OutcomeUnknown, p.Result = true, &done
			p.Detail = fmt.Sprintf("%s %d messages were %s before, and some may have been since; retry with the same cursor.", why, done.Changed, changed)
		}
		return nil, p
	}
	if rest.More {
		out.Body.Next = httpapi.Cursor(formatPosition(rest.Next), in.Body.Filter.texts()...)
	}
	return out, nil
}
