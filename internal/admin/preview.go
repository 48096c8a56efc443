package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
)

// maxPreview is how many letters a preview looks at.
const maxPreview = jobs.MaxIDs

// filterBody says which letters.
type filterBody struct {
	Status     []string  `json:"status,omitempty" nullable:"false" enum:"pending,parked,processing,failed,manual,resolved,archived" maxItems:"20" doc:"Letters that stand there; if it is empty, open ones, of a purge those that it may purge, of a restore archived ones"`
	ErrorClass string    `json:"error_class,omitempty" maxLength:"200"`
	EventType  string    `json:"event_type,omitempty" maxLength:"500"`
	Aggregate  string    `json:"aggregate,omitempty" maxLength:"1000"`
	Since      time.Time `json:"since,omitempty,omitzero" doc:"Letters that died first then or later"`
	Until      time.Time `json:"until,omitempty,omitzero" doc:"Letters that died first before"`
}

// JobTarget is what a job, or its preview, is of. It is exported for huma alone.
type JobTarget struct {
	Action    dlq.Action  `json:"action" enum:"replay,discard,release,park,resolve,purge,restore,archive" doc:"archive is a sweep, which moves what is older than its retention to the archive, and takes no letters"`
	Filter    *filterBody `json:"filter,omitempty" doc:"Which letters; what dies later is not among them"`
	IDs       []string    `json:"ids,omitempty" nullable:"false"`
	Object    string      `json:"object,omitempty" maxLength:"500" doc:"Of a restore, in place of ids or a filter: the letters of this object of the archive"`
	Limit     int         `json:"limit,omitempty" minimum:"0" doc:"So many letters at most, those that died last; 0 means all"`
	Rate      float64     `json:"rate,omitempty" minimum:"0" maximum:"1000000" doc:"Letters per second; 0 means as fast as it goes"`
	Force     bool        `json:"force,omitempty" doc:"Of a purge: failed and manual letters too, whose events are in no topic; those parked behind them go on"`
	NoArchive bool        `json:"no_archive,omitempty" doc:"Of a purge: write the letters to no archive, so that they are lost"`
}

// specOf reads what a job is to do. Nothing at all would mean all letters, which
// must be said.
func (ep *jobEndpoints) specOf(ctx context.Context, b *JobTarget) (spec jobs.Spec, err error) {
	spec = jobs.Spec{Action: b.Action, Limit: b.Limit, Rate: b.Rate, Force: b.Force, NoArchive: b.NoArchive}
	if ep.archive.keeper == nil && (b.Action == dlq.ActionRestore || b.Action == dlq.ActionArchive || b.Action == dlq.ActionPurge && !b.NoArchive) {
		p := newProblem(ctx, http.StatusConflict, problemRefused, "There is no archive: retention.archive of this server is empty.")
		if b.Action == dlq.ActionPurge {
			p.Hint = "no_archive loses the letters"
		}
		return spec, p
	}
	ids := b.IDs
	switch {
	case b.Object != "" && b.Action != dlq.ActionRestore:
		return spec, invalid(ctx, "body.object", "only a restore has one")
	case b.Object != "" && (b.Filter != nil || len(ids) > 0):
		return spec, invalid(ctx, "body.object", "use an object, ids or a filter, not two of them")
	case b.Object != "":
		if ids, err = ep.archive.eventsOf(ctx, b.Object); err != nil {
			return spec, err
		}
	}
	if b.Action == dlq.ActionArchive {
		if b.Filter != nil || len(ids) > 0 {
			return spec, invalid(ctx, "body.filter", "a sweep goes by the age of all letters: leave ids and filter out")
		}
	} else {
		w, err := whichOf(ctx, b.Filter, ids, spec.Statuses())
		if err != nil {
			return spec, err
		}
		spec.Filter, spec.IDs = w.filter, w.ids
	}
	if err := spec.Validate(); err != nil {
		return spec, invalid(ctx, "body", err.Error())
	}
	return spec, nil
}

// which are the letters that a request is about: by ids or by a filter.
type which struct {
	filter dlq.Filter
	ids    []gocql.UUID
}

// whichOf reads them.
func whichOf(ctx context.Context, filter *filterBody, ids []string, statuses []dlq.Status) (w which, err error) {
	switch {
	case filter != nil && len(ids) > 0:
		return w, invalid(ctx, "body.ids", "use ids or a filter, not both")
	case filter == nil && len(ids) == 0:
		return w, invalid(ctx, "body.filter", "say which letters: by ids, or by a filter; an empty one, {}, means all that stand where the action usually begins")
	case len(ids) > jobs.MaxIDs:
		return w, invalid(ctx, "body.ids", fmt.Sprintf("name at most %d, or use a filter", jobs.MaxIDs))
	}
	if w.ids, err = idsOf(ctx, ids); err != nil || filter == nil {
		return w, err
	}
	if err := span(ctx, "body.filter.", filter.Since, filter.Until); err != nil {
		return w, err
	}
	w.filter = dlq.Filter{
		Status: statusesOf(filter.Status), ErrorClass: filter.ErrorClass, EventType: filter.EventType, Aggregate: filter.Aggregate,
		Since: filter.Since, Until: filter.Until,
	}
	if len(w.filter.Status) == 0 {
		w.filter.Status = statuses
	}
	return w, nil
}

type previewInput struct {
	Body JobTarget
}

// previewBody is what an action would do.
type previewBody struct {
	jobs.Preview
	Missing   int  `json:"missing,omitempty" doc:"Ids that have no letter"`
	Truncated bool `json:"truncated" doc:"There are more letters than were looked at"`
	LookedAt  int  `json:"looked_at" doc:"Letters that were looked at"`
	Expired   int  `json:"objects_expired,omitempty" doc:"Of a sweep: objects of the archive whose time is over, which it removes"`
}

type previewOutput struct{ Body previewBody }

func (ep *jobEndpoints) registerPreview() {
	huma.Register(ep.api, ep.describe(access.Viewer, huma.Operation{
		OperationID: "preview", Method: http.MethodPost, Path: "/v1/dlq/preview", Summary: "Say what an action would do to letters, without doing it",
	}, 404, 409), ep.preview)
}

func (ep *jobEndpoints) preview(ctx context.Context, in *previewInput) (*previewOutput, error) {
	spec, err := ep.specOf(ctx, &in.Body)
	if err != nil {
		return nil, err
	}
	b, err := ep.previewOf(ctx, &spec)
	if err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	return &previewOutput{b}, nil
}

func (ep *jobEndpoints) previewOf(ctx context.Context, spec *jobs.Spec) (b previewBody, err error) {
	err = ep.heavily(ctx, func() error {
		if spec.Action == dlq.ActionArchive {
			return ep.archive.planned(ctx, &b)
		}
		letters, err := ep.some(ctx, spec, &b)
		if err != nil {
			return err
		}
		b.LookedAt = len(letters)
		b.Preview, _, err = ep.jobs.Preview(ctx, spec, letters)
		return err
	})
	if err == nil {
		err = ep.jobs.Estimate(ctx, &b.Preview, spec.Rate)
	}
	return b, err
}

// some reads the letters meant, up to maxPreview.
func (ep *jobEndpoints) some(ctx context.Context, spec *jobs.Spec, b *previewBody) ([]dlq.Letter, error) {
	limit := maxPreview
	if spec.Limit > 0 {
		limit = min(limit, spec.Limit)
	}
	var letters []dlq.Letter
	if len(spec.IDs) > 0 {
		ids := spec.IDs[:min(len(spec.IDs), limit)]
		found, err := ep.store.ReadMany(ctx, ids)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if l, ok := found[id]; ok {
				letters = append(letters, l)
			} else {
				b.Missing++
			}
		}
		return letters, nil
	}
	err := ep.store.List(ctx, spec.Filter, func(l *dlq.Letter) error {
		if !spec.Means(l) {
			return nil
		}
		if len(letters) == limit {
			b.Truncated = spec.Limit == 0 || spec.Limit > limit
			return dlq.ErrStop
		}
		letters = append(letters, *l)
		return nil
	})
	if err != nil && !errors.Is(err, dlq.ErrStop) {
		return nil, err
	}
	return letters, nil
}
