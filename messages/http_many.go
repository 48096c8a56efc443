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

// RegisterMany adds, to a server's API for operators, what is done with many of the
// messages that wait: release them or take them back.
func (a *API) RegisterMany(h huma.API) {
	const how = " A dry run counts them, up to 20,000, and changes nothing. A request changes up to 1,000, and with a rate as many as it lets in ten seconds: " +
		"ask again with next as cursor until there is none. Asking twice is harmless. After 503 ask again with the same cursor."
	audited := func() map[string]any { return map[string]any{httpapi.AuditBody: true} }
	huma.Register(h, huma.Operation{
		OperationID: "release-messages", Method: http.MethodPost, Path: "/v1/scheduled/release", Metadata: audited(),
		Summary:     "Release many messages that wait, ahead of their time",
		Description: "Those that match the filter and are not due yet become due at once, and go out as fast as the scheduler's rate lets them; each can be taken back until it is on its way." + how,
		Responses:   problems(h, 400, 403, 415, 422, 429, 503),
	}, a.releaseMany)
	huma.Register(h, huma.Operation{
		OperationID: "cancel-messages", Method: http.MethodPost, Path: "/v1/scheduled/cancel", Metadata: audited(),
		Summary:     "Take back many messages that wait",
		Description: "Those that match the filter are never published, and their payloads are removed at once; this cannot be undone." + how,
		Responses:   problems(h, 400, 403, 415, 422, 429, 503),
	}, a.cancelMany)
	addExamples(h.OpenAPI())
}

type manyFilter struct {
	Topic        string    `json:"topic,omitempty" maxLength:"249" doc:"Those for this topic"`
	Key          string    `json:"key,omitempty" maxLength:"500" doc:"Those with this key"`
	Client       string    `json:"client,omitempty" maxLength:"300" doc:"Those that this client handed in: a token's name, or address and the address"`
	From         time.Time `json:"from,omitzero" doc:"Those due then or later"`
	Until        time.Time `json:"until,omitzero" doc:"Those due earlier"`
	CreatedFrom  time.Time `json:"created_from,omitzero" doc:"Those handed in then or later"`
	CreatedUntil time.Time `json:"created_until,omitzero" doc:"Those handed in earlier; the time of the dry run keeps later ones out"`
}

type manyInput struct {
	Body struct {
		Filter manyFilter `json:"filter" doc:"Which: at least one member"`
		Limit  int        `json:"limit,omitempty" minimum:"1" maximum:"1000" doc:"How many this request changes at most; 1,000 unless it says otherwise"`
		Rate   float64    `json:"rate,omitempty" minimum:"0.1" maximum:"100000" doc:"How many in a second at most; as fast as it goes unless it says otherwise"`
		Cursor string     `json:"cursor,omitempty" maxLength:"200" doc:"next of the answer before"`
		DryRun bool       `json:"dry_run,omitempty" doc:"Only count them"`
	}
}

// many is what the request means.
func (in *manyInput) many(now time.Time, due bool) (Many, error) {
	b := &in.Body
	f := b.Filter
	if f == (manyFilter{}) {
		return Many{}, jsonform.Invalid("filter", "must say which: topic, key, client, from, until, created_from or created_until")
	}
	m := Many{
		Filter: schedule.Filter{Until: f.Until, Topic: f.Topic, Key: f.Key, Client: f.Client, CreatedFrom: f.CreatedFrom, CreatedUntil: f.CreatedUntil},
		After:  schedule.Position{DeliverAt: f.From}, Due: due,
	}
	if f.From.IsZero() {
		m.After.DeliverAt = now.Add(-schedule.MaxAhead)
	}
	if f.Until.IsZero() {
		m.Until = now.Add(schedule.MaxAhead + time.Minute)
	}
	if m.Until.Sub(m.After.DeliverAt) > 3*schedule.MaxAhead {
		return Many{}, jsonform.Invalid("filter.from", "must be at most three years before until")
	}
	if b.Cursor != "" {
		var ok bool
		if m.After, ok = readCursor(b.Cursor); !ok {
			return Many{}, jsonform.Invalid("cursor", "is none that an answer has ended with")
		}
		if m.Until.Sub(m.After.DeliverAt) > 3*schedule.MaxAhead { // it would be looked through month by month
			return Many{}, jsonform.Invalid("cursor", "is none that an answer with this filter has ended with")
		}
	}
	return m, nil
}

type manyOutput struct {
	Body struct {
		DryRun  bool     `json:"dry_run"`
		Preview Tally    `json:"preview" doc:"Those that match; of a change, those that it came to"`
		Result  *Changed `json:"result,omitempty" doc:"What was done; absent of a dry run"`
		Next    string   `json:"next,omitempty" doc:"The cursor of those that may follow; absent if there are none"`
	}
}

func (a *API) releaseMany(ctx context.Context, in *manyInput) (*manyOutput, error) {
	return a.changeMany(ctx, "release-messages", "released", in, false, a.service.ReleaseMany)
}

func (a *API) cancelMany(ctx context.Context, in *manyInput) (*manyOutput, error) {
	return a.changeMany(ctx, "cancel-messages", "taken back", in, true, a.service.CancelMany)
}

func (a *API) changeMany(
	ctx context.Context, operation, changed string, in *manyInput, due bool,
	change func(context.Context, Many, int, float64) (Tally, Changed, Rest, error),
) (*manyOutput, error) {
	many, err := in.many(a.service.cfg.Now(), due)
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
		case p.Status == httpapi.StatusHungUp: // which the audit is told
			why = "The caller has gone."
		}
		if why != "" {
			p.OutcomeUnknown = true
			p.Detail = fmt.Sprintf("%s %d messages were %s before, and some may be; ask again with the same cursor.", why, done.Changed, changed)
		}
		return nil, p
	}
	if rest.More {
		out.Body.Next = cursor(rest.Next)
	}
	return out, nil
}
