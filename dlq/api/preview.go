package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
)

// maxPreview is how many letters a preview looks at.
const maxPreview = dlq.MaxJobIDs

// filterBody says which letters.
type filterBody struct {
	Status     []string  `json:"status,omitempty" enum:"pending,parked,processing,failed,manual,resolved,archived" maxItems:"20" doc:"Letters that stand there; open ones if it is empty"`
	ErrorClass string    `json:"error_class,omitempty" maxLength:"200"`
	EventType  string    `json:"event_type,omitempty" maxLength:"500"`
	Aggregate  string    `json:"aggregate,omitempty" maxLength:"1000"`
	Since      time.Time `json:"since,omitempty,omitzero" doc:"Letters that died first then or later"`
	Until      time.Time `json:"until,omitempty,omitzero" doc:"Letters that died first before"`
}

// which are the letters that a request is about: by ids or by a filter.
type which struct {
	filter dlq.Filter
	ids    []gocql.UUID
	limit  int
}

// whichOf reads them. Nothing at all would mean all letters, which must be said.
func whichOf(ctx context.Context, filter *filterBody, ids []string, limit int) (w which, err error) {
	w.limit = limit
	switch {
	case filter != nil && len(ids) > 0:
		return w, invalid(ctx, "body.ids", "use ids or a filter, not both", len(ids))
	case filter == nil && len(ids) == 0:
		return w, invalid(ctx, "body.filter", "say which letters: by ids, or by a filter; an empty one, {}, means all open letters", nil)
	case len(ids) > dlq.MaxJobIDs:
		return w, invalid(ctx, "body.ids", fmt.Sprintf("name at most %d, or use a filter", dlq.MaxJobIDs), len(ids))
	}
	seen := make(map[gocql.UUID]bool, len(ids))
	for i, text := range ids {
		id, err := eventID(ctx, fmt.Sprintf("body.ids[%d]", i), text)
		if err != nil {
			return w, err
		}
		if !seen[id] {
			seen[id] = true
			w.ids = append(w.ids, id)
		}
	}
	if filter == nil {
		return w, nil
	}
	if err := span(ctx, "body.filter.", filter.Since, filter.Until); err != nil {
		return w, err
	}
	w.filter = dlq.Filter{
		Status: statusesOf(filter.Status), ErrorClass: filter.ErrorClass, EventType: filter.EventType, Aggregate: filter.Aggregate,
		Since: filter.Since, Until: filter.Until,
	}
	if len(w.filter.Status) == 0 {
		w.filter.Status = openStatuses()
	}
	return w, nil
}

func openStatuses() (out []dlq.Status) {
	for _, st := range dlq.Statuses {
		if st.Open() {
			out = append(out, st)
		}
	}
	return out
}

type previewInput struct {
	Body struct {
		Action dlq.Action  `json:"action" enum:"replay,discard,release,park,resolve"`
		Filter *filterBody `json:"filter,omitempty"`
		IDs    []string    `json:"ids,omitempty"`
		Limit  int         `json:"limit,omitempty" minimum:"0" doc:"So many letters at most, those that died last; 0 means all"`
		Rate   float64     `json:"rate,omitempty" minimum:"0" doc:"Letters per second that are meant, for the estimate"`
	}
}

// previewBody is what an action would do.
type previewBody struct {
	dlq.Preview
	Missing   int     `json:"missing,omitempty" doc:"Ids that have no letter"`
	Truncated bool    `json:"truncated" doc:"There are more letters than were looked at"`
	LookedAt  int     `json:"looked_at" doc:"Letters that were looked at"`
	Estimated float64 `json:"estimated_seconds,omitempty" doc:"How long it takes at the rate that was given"`
}

type previewOutput struct{ Body previewBody }

func (s *Server) preview(ctx context.Context, in *previewInput) (*previewOutput, error) {
	w, err := whichOf(ctx, in.Body.Filter, in.Body.IDs, in.Body.Limit)
	if err != nil {
		return nil, err
	}
	b, err := s.previewOf(ctx, in.Body.Action, w, in.Body.Rate)
	if err != nil {
		return nil, s.toProblem(ctx, err, false)
	}
	return &previewOutput{b}, nil
}

func (s *Server) previewOf(ctx context.Context, action dlq.Action, w which, rate float64) (b previewBody, err error) {
	err = s.heavily(ctx, func() error {
		letters, err := s.some(ctx, w, &b)
		if err != nil {
			return err
		}
		b.LookedAt = len(letters)
		b.Preview, _, err = s.letters.Preview(ctx, action, letters)
		return err
	})
	if rate > 0 {
		b.Estimated = float64(b.Letters) / rate
	}
	return b, err
}

// some reads the letters meant, up to maxPreview.
func (s *Server) some(ctx context.Context, w which, b *previewBody) ([]dlq.Letter, error) {
	limit := maxPreview
	if w.limit > 0 {
		limit = min(limit, w.limit)
	}
	var letters []dlq.Letter
	if len(w.ids) > 0 {
		found, err := s.letters.ReadMany(ctx, w.ids[:min(len(w.ids), limit)])
		if err != nil {
			return nil, err
		}
		for _, id := range w.ids[:min(len(w.ids), limit)] {
			if l, ok := found[id]; ok {
				letters = append(letters, l)
			} else {
				b.Missing++
			}
		}
		return letters, nil
	}
	err := s.letters.List(ctx, w.filter, func(l *dlq.Letter) error {
		if len(letters) == limit {
			b.Truncated = w.limit == 0 || w.limit > limit
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
