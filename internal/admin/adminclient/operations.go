package adminclient

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/admin"
	"github.com/scylla-outbox/scylla-outbox/messages"
	client "github.com/scylla-outbox/scylla-outbox/outbox/messages"
	"github.com/scylla-outbox/scylla-outbox/subscriptions/redeliver"
)

// maxPage is the largest page of a list.
const maxPage = 500

// Paging is the part of a list that is read: up to Limit entries, 0 for all, behind a Cursor, empty
// for the first ones.
type Paging struct {
	Cursor string
	Limit  int
}

// pages reads a part of a list; next is the cursor of what follows, empty for none. page reads the
// page of a query and returns the cursor of the next one, empty for none.
func pages[T any](q url.Values, p Paging, page func(url.Values) ([]T, string, error)) (all []T, next string, err error) {
	all = []T{}
	set(q, "cursor", p.Cursor)
	for {
		size := maxPage
		if p.Limit > 0 {
			size = min(size, p.Limit-len(all))
		}
		q.Set("limit", strconv.Itoa(size))
		found, next, err := page(q)
		if err != nil {
			return nil, "", err
		}
		all = append(all, found...)
		if next == "" || p.Limit > 0 && len(all) >= p.Limit {
			return all, next, nil
		}
		q.Set("cursor", next)
	}
}

// DeadLetters lists dead letters, latest first failure first.
func (c *Client) DeadLetters(ctx context.Context, f dlq.Filter, p Paging) (found []admin.ListedDeadLetter, next string, err error) {
	return c.deadLetters(ctx, make(url.Values), f, p)
}

// DeadLettersWithPayload is DeadLetters with their payloads.
func (c *Client) DeadLettersWithPayload(ctx context.Context, f dlq.Filter, p Paging) (found []admin.ListedDeadLetter, next string, err error) {
	return c.deadLetters(ctx, url.Values{"with_payload": {"true"}}, f, p)
}

func (c *Client) deadLetters(ctx context.Context, q url.Values, f dlq.Filter, p Paging) (found []admin.ListedDeadLetter, next string, err error) {
	statuses := make([]string, len(f.Status))
	for i, s := range f.Status {
		statuses[i] = string(s)
	}
	set(q, "status", strings.Join(statuses, ","))
	set(q, "error_class", f.ErrorClass)
	set(q, "error_code", f.ErrorCode)
	set(q, "outcome", string(f.Outcome))
	set(q, "event_type", f.EventType)
	set(q, "aggregate_id", f.Aggregate)
	set(q, "table", f.Table)
	set(q, "text", f.Text)
	set(q, "tag", strings.Join(f.Tags, ","))
	set(q, "since", formatTime(f.Since))
	set(q, "until", formatTime(f.Until))
	if f.MinPriority != nil {
		q.Set("min_priority", strconv.Itoa(*f.MinPriority))
	}
	return pages(q, p, func(q url.Values) ([]admin.ListedDeadLetter, string, error) {
		var page struct {
			DeadLetters []admin.ListedDeadLetter `json:"dead_letters"`
			Next        string                   `json:"next"`
		}
		err := c.get(ctx, "/v1/dead-letters", q, &page)
		return page.DeadLetters, page.Next, err
	})
}

// set adds a parameter, unless it is empty.
func set(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

// formatTime returns a time as in queries, empty for the zero time.
func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

// DeadLetter returns the dead letter of an event, or of the event that an edit replaces.
func (c *Client) DeadLetter(ctx context.Context, event string) (out admin.DeadLetterBody, err error) {
	err = c.get(ctx, deadLetterPath(event), nil, &out)
	return out, err
}

func deadLetterPath(event string) string { return "/v1/dead-letters/" + url.PathEscape(event) }

// Event returns the history of an event. The aggregate, which may be empty, finds its outbox
// row.
func (c *Client) Event(ctx context.Context, event, aggregate string) (out admin.BiographyBody, err error) {
	query := url.Values{}
	if aggregate != "" {
		query.Set("aggregate_id", aggregate)
	}
	err = c.get(ctx, "/v1/events/"+url.PathEscape(event), query, &out)
	return out, err
}

// Aggregate returns the newest entries of the timeline of an aggregate, at most limit.
func (c *Client) Aggregate(ctx context.Context, id string, limit int) (out admin.AggregateBody, err error) {
	err = c.get(ctx, "/v1/aggregates/"+url.PathEscape(id), url.Values{"limit": {strconv.Itoa(limit)}}, &out)
	return out, err
}

// RecentEvents lists the newest events in a state. An empty state is any, and a zero time the
// server's. gaps are the parts that were not read.
func (c *Client) RecentEvents(ctx context.Context, state string, since time.Time, p Paging) (found []admin.RecentEvent, gaps []string, next string, err error) {
	q := make(url.Values)
	set(q, "state", state)
	set(q, "since", formatTime(since))
	found, next, err = pages(q, p, func(q url.Values) ([]admin.RecentEvent, string, error) {
		var page admin.RecentEventsBody
		err := c.get(ctx, "/v1/events", q, &page)
		gaps = append(gaps, page.Gaps...)
		return page.Events, page.Next, err
	})
	slices.Sort(gaps)
	return found, slices.Compact(gaps), next, err
}

// Status returns the state of the system.
func (c *Client) Status(ctx context.Context) (out admin.StatusBody, err error) {
	err = c.get(ctx, "/v1/status", nil, &out)
	return out, err
}

// Stats counts the dead letters.
func (c *Client) Stats(ctx context.Context) (out admin.StatsBody, err error) {
	err = c.get(ctx, "/v1/dead-letters/stats", nil, &out)
	return out, err
}

// Edit edits the dead letter of an event that is at a version, or with DryRun previews the
// edit.
func (c *Client) Edit(ctx context.Context, event string, version int64, b admin.EditBody, reason string) (out admin.EditedBody, err error) {
	err = c.send(ctx, request{method: http.MethodPost, path: deadLetterPath(event) + "/edit", version: version, reason: reason, body: b}, &out)
	return out, err
}

// Preview returns the effects of a job without creating it.
func (c *Client) Preview(ctx context.Context, target admin.JobTarget) (out admin.PreviewBody, err error) {
	err = c.post(ctx, "/v1/dead-letters/preview", target, &out)
	return out, err
}

// CreateJob creates a job.
func (c *Client) CreateJob(ctx context.Context, job admin.NewJobBody, reason string) (out admin.JobBody, err error) {
	err = c.send(ctx, request{method: http.MethodPost, path: "/v1/jobs", reason: reason, body: job}, &out)
	return out, err
}

// PreviewRedelivery returns what a redelivery to a subscription would deliver.
func (c *Client) PreviewRedelivery(ctx context.Context, name string, b admin.RedeliverBody) (redeliver.Plan, error) {
	var out admin.RedeliverPreviewBody
	b.DryRun = true
	err := c.post(ctx, redeliverPath(name), b, &out)
	return out.Preview, err
}

// Redeliver creates the job of a redelivery.
func (c *Client) Redeliver(ctx context.Context, name string, b admin.RedeliverBody, reason string) (out admin.JobBody, err error) {
	err = c.send(ctx, request{method: http.MethodPost, path: redeliverPath(name), reason: reason, body: b}, &out)
	return out, err
}

func redeliverPath(name string) string {
	return "/v1/subscriptions/" + url.PathEscape(name) + "/redeliver"
}

// Jobs lists the jobs that were created from since until before until, newest first; a zero time is
// no bound.
func (c *Client) Jobs(ctx context.Context, since, until time.Time, p Paging) (found []admin.JobBody, next string, err error) {
	return pages(make(url.Values), p, func(q url.Values) ([]admin.JobBody, string, error) {
		var page struct {
			Jobs []admin.JobBody `json:"jobs"`
			Next string          `json:"next"`
		}
		err := c.get(ctx, "/v1/jobs", q, &page)
		if n := len(page.Jobs); n > 0 && page.Jobs[n-1].CreatedAt.Before(since) {
			page.Next = "" // the others are older
		}
		return slices.DeleteFunc(page.Jobs, func(j admin.JobBody) bool {
			return j.CreatedAt.Before(since) || !until.IsZero() && !j.CreatedAt.Before(until)
		}), page.Next, err
	})
}

// Job returns a job.
func (c *Client) Job(ctx context.Context, id string) (out admin.JobBody, err error) {
	err = c.get(ctx, jobPath(id), nil, &out)
	return out, err
}

func jobPath(id string) string { return "/v1/jobs/" + url.PathEscape(id) }

// The changes of a job, for SteerJob.
const (
	Pause  = "pause"
	Resume = "resume"
	Cancel = "cancel"
)

// SteerJob pauses, resumes or cancels a job and returns it.
func (c *Client) SteerJob(ctx context.Context, id, what, reason string) (out admin.JobBody, err error) {
	err = c.send(ctx, request{method: http.MethodPost, path: jobPath(id) + "/" + what, reason: reason}, &out)
	return out, err
}

// Archives lists the objects of the archive that were written since a time, oldest first.
// configured reports whether the server has an archive.
func (c *Client) Archives(ctx context.Context, since time.Time) (found []admin.ArchiveObject, configured bool, err error) {
	q := make(url.Values)
	set(q, "since", formatTime(since))
	found, _, err = pages(q, Paging{}, func(q url.Values) ([]admin.ArchiveObject, string, error) {
		var page struct {
			Configured bool                  `json:"configured"`
			Objects    []admin.ArchiveObject `json:"objects"`
			Next       string                `json:"next"`
		}
		err := c.get(ctx, "/v1/archives", q, &page)
		configured = page.Configured
		return page.Objects, page.Next, err
	})
	return found, configured, err
}

// AuditQuery selects entries of the audit trail. Zero fields select all entries, of the last
// 30 days.
type AuditQuery struct {
	// Since and Until bound the time of the request; Until itself is not in.
	Since, Until time.Time
	// Actor is the name of a user, and Actions are kinds of changes.
	Actor   string
	Actions []string
}

// Audit lists entries of the audit trail, newest first.
func (c *Client) Audit(ctx context.Context, by AuditQuery, p Paging) (found []admin.AuditEntry, next string, err error) {
	q := make(url.Values)
	set(q, "since", formatTime(by.Since))
	set(q, "until", formatTime(by.Until))
	set(q, "actor", by.Actor)
	set(q, "action", strings.Join(by.Actions, ","))
	return pages(q, p, func(q url.Values) ([]admin.AuditEntry, string, error) {
		var page struct {
			Entries []admin.AuditEntry `json:"entries"`
			Next    string             `json:"next"`
		}
		err := c.get(ctx, "/v1/audit", q, &page)
		return page.Entries, page.Next, err
	})
}

// ScheduledMessage is a message that waits for its time.
type ScheduledMessage struct {
	ID        string         `json:"id"`
	State     messages.State `json:"state"`
	Topic     string         `json:"topic"`
	Key       string         `json:"key,omitempty"`
	Client    string         `json:"client,omitempty"`
	CreatedAt time.Time      `json:"created_at"`
	DeliverAt time.Time      `json:"deliver_at"`
}

// Scheduled lists scheduled messages, the next to be delivered first.
func (c *Client) Scheduled(ctx context.Context, f messages.ManyFilter, p Paging) (found []ScheduledMessage, next string, err error) {
	q := url.Values{"state": {string(messages.Scheduled)}}
	set(q, "topic", f.Topic)
	set(q, "key", f.Key)
	set(q, "client", f.Client)
	set(q, "since", formatTime(f.Since))
	set(q, "until", formatTime(f.Until))
	set(q, "created_since", formatTime(f.CreatedSince))
	set(q, "created_until", formatTime(f.CreatedUntil))
	read := func(q url.Values) ([]ScheduledMessage, string, error) {
		var page struct {
			Messages []ScheduledMessage `json:"messages"`
			Next     string             `json:"next"`
		}
		err := c.get(ctx, messages.Path, q, &page)
		return page.Messages, page.Next, err
	}
	found, next, err = pages(q, p, read)
	if next == "" || err != nil {
		return found, next, err
	}
	// A full page has a cursor even if nothing follows.
	more, _, err := pages(q, Paging{next, 1}, read)
	if len(more) == 0 {
		next = ""
	}
	return found, next, err
}

// Message returns the state of a message.
func (c *Client) Message(ctx context.Context, id string) (out client.Message, err error) {
	err = c.get(ctx, messages.Path+"/"+url.PathEscape(id), nil, &out)
	return out, err
}

// The changes of scheduled messages, for ChangeScheduled.
const (
	DeliverScheduledNow = "deliver-now"
	CancelScheduled     = "cancel"
)

// ChangeScheduled delivers or cancels scheduled messages, or with DryRun counts them. It is
// repeated with the cursor of its result until there is none. A failed request can be
// repeated.
func (c *Client) ChangeScheduled(ctx context.Context, what string, b messages.ManyBody, reason string) (out messages.ManyResultBody, err error) {
	err = c.send(ctx, request{method: http.MethodPost, path: "/v1/messages/" + what, body: b, reason: reason}, &out)
	return out, err
}

// Reshard changes the number of shards of a relay, or with DryRun returns the plan.
func (c *Client) Reshard(ctx context.Context, relay string, b admin.ReshardBody, reason string) (out admin.ReshardedBody, err error) {
	err = c.send(ctx, request{method: http.MethodPost, path: "/v1/relays/" + url.PathEscape(relay) + "/reshard", reason: reason, body: b}, &out)
	return out, err
}
