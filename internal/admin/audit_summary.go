package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/dlq/jobs"
)

// createJob is the action of an entry that created a job; its detail is the request.
const createJob = "create-job"

// redeliverSubscription is that of an entry that created a job for a slice of its target; its
// outcome names the job.
const redeliverSubscription = "redeliver-subscription"

// summarize sets the summary of each entry. That of a job counts the dead letters that the job
// has changed by now, unless the jobs cannot be read: the trail does not depend on them.
func (ep *auditEndpoints) summarize(ctx context.Context, entries []AuditEntry) {
	var ids []gocql.UUID
	for i := range entries {
		if id, ok := entries[i].job(); ok && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	found, err := ep.jobs.ReadMany(ctx, ids)
	if err != nil {
		ep.log.Warn("failed to read the jobs of the audit trail", "err", err)
	}
	of := make(map[gocql.UUID]*jobs.Job, len(found))
	for _, j := range found {
		of[j.ID] = j
	}
	for i := range entries {
		id, _ := entries[i].job()
		entries[i].Summary = entries[i].summary(of[id])
	}
}

// job returns the job that the entry created or changed.
func (e *AuditEntry) job() (gocql.UUID, bool) {
	job := e.Target
	switch {
	case e.Action == redeliverSubscription:
		var made struct{ Job string }
		if json.Unmarshal([]byte(e.Outcome), &made) != nil {
			return gocql.UUID{}, false
		}
		job = made.Job
	case !strings.HasSuffix(e.Action, "-job"):
		return gocql.UUID{}, false
	}
	id, err := gocql.ParseUUID(job)
	return id, err == nil
}

// summary returns the change in one sentence. j is the job of the entry; nil if it has none, or
// if the job is gone.
func (e *AuditEntry) summary(j *jobs.Job) string {
	var parts []string
	switch words := strings.ReplaceAll(e.Action, "-", " "); {
	case e.Action == createJob:
		parts = requestedJob(e.Detail, j)
	case e.Action == redeliverSubscription:
		var b RedeliverBody
		parts = []string{words + " " + e.Target}
		if j != nil && j.Progress.Total > 0 {
			parts = append(parts, countChanged(j, "message", "messages"))
		}
		if json.Unmarshal([]byte(e.Detail), &b) == nil {
			parts = append(parts, describeSlice(&b.Slice)...)
		}
	case j != nil && j.Redelivery != nil:
		parts = append([]string{words, "redelivery to " + j.Redelivery.Subscription, countChanged(j, "message", "messages")}, describeSlice(&j.Redelivery.Slice)...)
	case j != nil:
		f := j.Filter
		if f.Until.Equal(j.CreatedAt()) {
			f.Until = time.Time{}
		}
		parts = append([]string{words, string(j.Action), changedBy(j)}, selection(&f)...)
	case slices.Contains(dlq.Actions, dlq.Action(e.Action)):
		parts = []string{words, "1 dead letter"}
	default:
		parts = []string{strings.TrimSpace(words + " " + e.Target)}
		var of struct{ Lease string }
		if json.Unmarshal([]byte(e.Detail), &of) == nil && of.Lease != "" {
			parts = append(parts, "lease "+of.Lease)
		}
	}
	if e.Reason != "" {
		parts = append(parts, "reason "+e.Reason)
	}
	if e.State != auditDone {
		parts[0] = e.State + ": " + parts[0]
	}
	return strings.Join(parts, ", ")
}

// requestedJob returns the parts of the summary of a new job from its request, and from the job
// unless that is nil.
func requestedJob(request string, j *jobs.Job) []string {
	var b NewJobBody
	if json.Unmarshal([]byte(request), &b) != nil {
		return []string{"create job"}
	}
	parts := []string{string(b.Action), "dead letters"}
	if j != nil {
		parts[1] = changedBy(j)
	}
	if b.Topic != "" {
		parts = append(parts, "to topic "+b.Topic)
	}
	if b.Object != "" {
		parts = append(parts, "object "+b.Object)
	}
	if b.Filter != nil {
		f := b.Filter.filter()
		parts = append(parts, selection(&f)...)
	}
	if b.Set != nil {
		parts = append(parts, b.Set.words()...)
	}
	return parts
}

// changedBy returns how many of its dead letters a job has changed.
func changedBy(j *jobs.Job) string {
	p := &j.Progress
	switch {
	case j.Started.IsZero() && p.Total == 0:
		return "dead letters"
	case j.Action == dlq.ActionArchive: // a sweep counts the dead letters that it has moved
		return plural(int64(p.Changed), "dead letter", "dead letters")
	}
	return countChanged(j, "dead letter", "dead letters")
}

// countChanged returns how many of its total a job has changed.
func countChanged(j *jobs.Job, one, many string) string {
	p := &j.Progress
	if p.Changed == p.Total {
		return plural(int64(p.Changed), one, many)
	}
	return fmt.Sprintf("%d of %s", p.Changed, plural(int64(p.Total), one, many))
}

// describeSlice returns the criteria of a slice.
func describeSlice(s *jobs.Slice) (out []string) {
	f := dlq.Filter{Since: s.Since, Until: s.Until}
	for _, x := range []struct{ name, value string }{{"topic", s.Topic}, {"key", s.Key}, {"filter", s.Filter}} {
		if x.value != "" {
			out = append(out, x.name+" "+x.value)
		}
	}
	return append(out, selection(&f)...)
}

// selection returns the criteria of a filter; that of the error class is its name alone.
func selection(f *dlq.Filter) (out []string) {
	add := func(name, value string) {
		if value != "" {
			out = append(out, strings.TrimSpace(name+" "+value))
		}
	}
	at := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format(time.RFC3339)
	}
	add("", f.ErrorClass)
	add("code", f.ErrorCode)
	if len(f.Status) == 1 { // several are the statuses that the action starts from
		add("", string(f.Status[0]))
	}
	add("", string(f.Outcome))
	add("", f.EventType)
	add("aggregate", f.Aggregate)
	add("", f.Table)
	for _, tag := range f.Tags {
		add("tag", tag)
	}
	if f.MinPriority != nil {
		add("priority at least", fmt.Sprint(*f.MinPriority))
	}
	if f.Text != "" {
		add("text", fmt.Sprintf("%q", f.Text))
	}
	add("since", at(f.Since))
	add("until", at(f.Until))
	return out
}

// words returns the changes in words.
func (b *Labels) words() (out []string) {
	if b.Priority != nil {
		out = append(out, fmt.Sprint("priority ", *b.Priority))
	}
	for _, tag := range b.AddTags {
		out = append(out, "add tag "+tag)
	}
	for _, tag := range b.RemoveTags {
		out = append(out, "remove tag "+tag)
	}
	return out
}
