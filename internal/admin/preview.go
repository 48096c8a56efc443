package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/topiclist"
)

// maxPreview is the maximum number of dead letters that a preview examines.
const maxPreview = jobs.MaxIDs

// FilterBody selects dead letters of a request.
type FilterBody struct {
	Status      []string  `json:"status,omitempty" nullable:"false" enum:"pending,blocked,processing,failed,suspended,resolved,archived" maxItems:"20" doc:"Dead letters with this status; empty means open ones, for a purge those that it may purge, for a restore archived ones, for reopen resolved ones"`
	ErrorClass  string    `json:"error_class,omitempty" maxLength:"200"`
	ErrorCode   string    `json:"error_code,omitempty" maxLength:"200" doc:"Dead letters with this code of the broker or the database"`
	Outcome     string    `json:"outcome,omitempty" enum:"replayed,redirected,found,discarded,unblocked,by_hand" doc:"Dead letters that were resolved in this way"`
	EventType   string    `json:"event_type,omitempty" maxLength:"500"`
	Aggregate   string    `json:"aggregate_id,omitempty" maxLength:"1000"`
	Table       string    `json:"table,omitempty" maxLength:"500" doc:"An outbox table, keyspace.table, or a subscription, subscription.NAME"`
	Tags        []string  `json:"tags,omitempty" nullable:"false" maxItems:"16" doc:"Dead letters with all of these tags"`
	MinPriority *int      `json:"min_priority,omitempty" minimum:"-100" maximum:"100" doc:"Dead letters with this priority or a higher one"`
	Text        string    `json:"text,omitempty" maxLength:"200" doc:"Dead letters whose error, event type or aggregate id contains this text, case-insensitive"`
	Since       time.Time `json:"since,omitempty,omitzero" doc:"Dead letters whose first failure was at this time or later"`
	Until       time.Time `json:"until,omitempty,omitzero" doc:"Dead letters whose first failure was before this time"`
}

// filter returns the filter of the request.
func (b *FilterBody) filter() dlq.Filter {
	return dlq.Filter{
		Status: parseStatuses(b.Status), ErrorClass: b.ErrorClass, EventType: b.EventType, Aggregate: b.Aggregate, ErrorCode: b.ErrorCode,
		Outcome: dlq.OutcomeKind(b.Outcome), Since: b.Since, Until: b.Until, Table: b.Table, Tags: b.Tags, MinPriority: b.MinPriority, Text: b.Text,
	}
}

// JobTarget is the action and the dead letters of a job or a preview.
type JobTarget struct {
	Action     dlq.Action  `json:"action" enum:"replay,redirect,discard,unblock,suspend,resolve,reopen,set,purge,restore,archive" doc:"archive is a sweep: it moves dead letters past their retention to the archive and accepts no ids or filter"`
	Filter     *FilterBody `json:"filter,omitempty" doc:"The dead letters; later ones are not included"`
	IDs        []string    `json:"ids,omitempty" nullable:"false"`
	Object     string      `json:"object,omitempty" maxLength:"500" doc:"For a restore, instead of ids or a filter: the dead letters of this object of the archive"`
	Limit      int         `json:"limit,omitempty" minimum:"0" doc:"Maximum number of dead letters, latest failures first; 0 means all"`
	Rate       float64     `json:"rate,omitempty" minimum:"0" maximum:"1000000" doc:"Dead letters per second; 0 means unlimited"`
	Force      bool        `json:"force,omitempty" doc:"For a purge: include failed and suspended dead letters, whose events are in no topic; events blocked behind them proceed"`
	ByPriority bool        `json:"by_priority,omitempty" doc:"For a replay: higher priorities first, then the oldest failures; the filter may select at most 10000 dead letters"`
	InOrder    bool        `json:"in_order,omitempty" doc:"For ids: one dead letter after the other, in the order of ids; slower"`
	Set        *Labels     `json:"set,omitempty" doc:"For the action set: the change of priority and tags"`
	Topic      string      `json:"topic,omitempty" maxLength:"249" doc:"For the action redirect: the topic to publish to, in place of that of the event"`
	NoArchive  bool        `json:"no_archive,omitempty" doc:"For a purge: delete the dead letters without writing them to an archive"`
}

// newSpec converts the request to a job. An empty request is refused, because it would
// select all dead letters.
func (ep *jobEndpoints) newSpec(ctx context.Context, b *JobTarget) (spec jobs.Spec, err error) {
	spec = jobs.Spec{Action: b.Action, Limit: b.Limit, Rate: b.Rate, Force: b.Force, NoArchive: b.NoArchive, ByPriority: b.ByPriority, Topic: b.Topic, InOrder: b.InOrder}
	if b.Set != nil {
		if spec.Set, err = b.Set.change(ctx, "body.set"); err != nil {
			return spec, err
		}
	}
	if ep.archive.keeper == nil && (b.Action == dlq.ActionRestore || b.Action == dlq.ActionArchive || b.Action == dlq.ActionPurge && !b.NoArchive) {
		p := newProblem(ctx, httpapi.TypeRefused, "There is no archive: archive.url of this server is empty.")
		if b.Action == dlq.ActionPurge {
			p.Hint = "no_archive deletes the dead letters without an archive"
		}
		return spec, p
	}
	if b.Action == dlq.ActionRedirect && !dlq.ValidTopic(b.Topic) {
		return spec, invalid(ctx, "body.topic", "required for a redirect: a topic of at most 249 letters, digits and . _ -")
	}
	ids := b.IDs
	switch {
	case b.Object != "" && b.Action != dlq.ActionRestore:
		return spec, invalid(ctx, "body.object", "allowed only for a restore")
	case b.Object != "" && (b.Filter != nil || len(ids) > 0):
		return spec, invalid(ctx, "body.object", "use only one of object, ids and filter")
	case b.Object != "":
		if ids, err = ep.archive.readEventIDs(ctx, b.Object); err != nil {
			return spec, err
		}
	}
	if b.Action == dlq.ActionArchive {
		if b.Filter != nil || len(ids) > 0 {
			return spec, invalid(ctx, "body.filter", "a sweep selects dead letters by age: omit ids and filter")
		}
	} else {
		w, err := parseWhich(ctx, b.Filter, ids, spec.Statuses())
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

// topicTimeout bounds the question whether a topic exists.
const topicTimeout = 3 * time.Second

// mayExist reports whether a topic exists, or could not be searched. The relay would create the topic
// of a misspelt name, so operators create the one they mean.
func (ep *jobEndpoints) mayExist(ctx context.Context, topic string) bool {
	if ep.kafka == nil {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, topicTimeout)
	defer cancel()
	client, err := ep.kafka.Client(kgo.RequestRetries(1))
	if err == nil {
		defer client.Close()
		var found kadm.TopicDetails
		if found, err = topiclist.List(ctx, client, topic); err == nil {
			return !topiclist.IsAbsent(found, topic)
		}
	}
	ep.log.WarnContext(ctx, "failed to search the topic of a redirect", "topic", topic, "err", err)
	return true
}

// which selects the dead letters of a request, by ids or by a filter.
type which struct {
	filter dlq.Filter
	ids    []gocql.UUID
}

// parseWhich reads the ids or the filter of a request.
func parseWhich(ctx context.Context, filter *FilterBody, ids []string, statuses []dlq.Status) (w which, err error) {
	switch {
	case filter != nil && len(ids) > 0:
		return w, invalid(ctx, "body.ids", "use ids or a filter, not both")
	case filter == nil && len(ids) == 0:
		return w, invalid(ctx, "body.filter", "required: ids or a filter; an empty filter, {}, selects all dead letters with a status that the action usually starts from")
	case len(ids) > jobs.MaxIDs:
		return w, invalid(ctx, "body.ids", fmt.Sprintf("at most %d ids are allowed; use a filter for more", jobs.MaxIDs))
	}
	if w.ids, err = parseIDs(ctx, ids); err != nil || filter == nil {
		return w, err
	}
	if err := span(ctx, "body.filter.", filter.Since, filter.Until); err != nil {
		return w, err
	}
	if err := checkTags(ctx, "body.filter.tags", filter.Tags); err != nil {
		return w, err
	}
	w.filter = filter.filter()
	if len(w.filter.Status) == 0 {
		w.filter.Status = statuses
	}
	return w, nil
}

type previewInput struct {
	Body JobTarget
}

// PreviewBody is the preview of an action.
type PreviewBody struct {
	jobs.Preview
	Missing   int  `json:"missing,omitempty" doc:"Number of ids without a dead letter"`
	Truncated bool `json:"truncated" doc:"More dead letters exist than were examined"`
	LookedAt  int  `json:"looked_at" doc:"Number of examined dead letters"`
	Expired   int  `json:"objects_expired,omitempty" doc:"For a sweep: number of expired objects of the archive, which it removes"`

	Reasons  []string `json:"reasons,omitempty" nullable:"false" doc:"For ids: why they are refused or have no dead letter, at most 10"`
	Problems []string `json:"problems,omitempty" nullable:"false" doc:"For a replay or a redirect: why relays would not publish the dead letters now, such as an open breaker; they do once they can"`
}

// maxReasons is the maximum number of reasons in a preview.
const maxReasons = 10

// refuse adds a reason.
func (b *PreviewBody) refuse(reason string) {
	if len(b.Reasons) < maxReasons {
		b.Reasons = append(b.Reasons, reason)
	}
}

type previewOutput struct{ Body PreviewBody }

func (ep *jobEndpoints) registerPreview() {
	huma.Register(ep.api, ep.describe(access.Viewer, huma.Operation{
		OperationID: "preview", Method: http.MethodPost, Path: "/v1/dead-letters/preview", Summary: "Preview an action on dead letters",
	}, 404, 409), ep.preview)
}

func (ep *jobEndpoints) preview(ctx context.Context, in *previewInput) (*previewOutput, error) {
	spec, err := ep.newSpec(ctx, &in.Body)
	if err != nil {
		return nil, err
	}
	b, err := ep.newPreview(ctx, &spec)
	if err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	return &previewOutput{b}, nil
}

func (ep *jobEndpoints) newPreview(ctx context.Context, spec *jobs.Spec) (b PreviewBody, err error) {
	err = ep.heavily(ctx, func() error {
		if spec.Action == dlq.ActionArchive {
			return ep.archive.planSweep(ctx, &b)
		}
		deadLetters, err := ep.some(ctx, spec, &b)
		if err != nil {
			return err
		}
		b.LookedAt = len(deadLetters)
		for i := range deadLetters {
			if err := ep.jobs.Check(spec, &deadLetters[i]); err != nil && len(spec.IDs) > 0 {
				b.refuse(err.Error())
			}
		}
		var may []dlq.DeadLetter
		if b.Preview, may, err = ep.jobs.Preview(ctx, spec, deadLetters); err == nil && spec.Action.Publishes() {
			b.Problems, err = ep.relays.problems(ctx, may)
		}
		return err
	})
	if err == nil {
		err = ep.jobs.Estimate(ctx, &b.Preview, spec.Rate)
	}
	return b, err
}

// some reads the selected dead letters, up to maxPreview.
func (ep *jobEndpoints) some(ctx context.Context, spec *jobs.Spec, b *PreviewBody) ([]dlq.DeadLetter, error) {
	limit := maxPreview
	if spec.Limit > 0 {
		limit = min(limit, spec.Limit)
	}
	var deadLetters []dlq.DeadLetter
	if spec.ByPriority {
		found, err := ep.jobs.ByPriority(ctx, spec)
		if len(spec.IDs) > 0 && spec.Limit == 0 {
			b.Missing = len(spec.IDs) - len(found)
		}
		return found, err
	}
	if len(spec.IDs) > 0 {
		ids := spec.IDs[:min(len(spec.IDs), limit)]
		found, err := ep.store.ReadMany(ctx, ids)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if l, ok := found[id]; ok {
				deadLetters = append(deadLetters, l)
			} else {
				b.Missing++
				b.refuse("event " + id.String() + " has no dead letter")
			}
		}
		return deadLetters, nil
	}
	err := ep.store.List(ctx, spec.Filter, func(l *dlq.DeadLetter) error {
		if !spec.Means(l) {
			return nil
		}
		if len(deadLetters) == limit {
			b.Truncated = spec.Limit == 0 || spec.Limit > limit
			return dlq.ErrStop
		}
		deadLetters = append(deadLetters, *l)
		return nil
	})
	if err != nil && !errors.Is(err, dlq.ErrStop) {
		return nil, err
	}
	return deadLetters, nil
}
