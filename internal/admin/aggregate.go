package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/internal/kafkarecord"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
)

const (
	// aggregateDeadLetters and aggregateScheduled bound the dead letters and the scheduled messages of
	// an aggregate that are read; maxRows and topicsRecords bound its rows and the records.
	aggregateDeadLetters, aggregateScheduled = 200, 100
	// historiesAtOnce bounds the histories of dead letters that are read concurrently.
	historiesAtOnce = 32
)

type aggregateInput struct {
	ID    string `path:"id" minLength:"1" maxLength:"1000" doc:"Aggregate id as in events and dead letters; a message is the aggregate of its own id"`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"200"`
	httpapi.Page
}

// AggregateBody contains the known facts of an aggregate, in one list.
type AggregateBody struct {
	AggregateID string           `json:"aggregate_id" doc:"As in the request"`
	Entries     []AggregateEntry `json:"entries" nullable:"false" doc:"Newest first; those without a time are last"`
	Next        string           `json:"next,omitempty" doc:"Cursor of the next page; absent on the last page"`
	// Gaps are the parts that were not read, with the reasons.
	Gaps []string `json:"gaps" nullable:"false" doc:"What was not read, with the reasons"`
}

// AggregateEntry is one fact about an aggregate.
type AggregateEntry struct {
	Kind         string     `json:"kind" enum:"stored,published,dead_letter,dead_letter_changed,edited,scheduled" doc:"stored: a row of the outbox; published: a record; scheduled: a message that waits for its time"`
	What         string     `json:"what"`
	At           *time.Time `json:"at,omitempty" doc:"Of a scheduled message the time when it is due"`
	EventID      string     `json:"event_id,omitempty"`
	EventType    string     `json:"event_type,omitempty"`
	Sequence     int64      `json:"sequence,omitempty"`
	Detail       string     `json:"detail,omitempty"`
	Topic        string     `json:"topic,omitempty"`
	Partition    *int32     `json:"partition,omitempty"`
	Offset       *int64     `json:"offset,omitempty"`
	DeadLetterID string     `json:"dead_letter_id,omitempty" format:"uuid"`
	MessageID    string     `json:"message_id,omitempty" format:"uuid" doc:"Of a scheduled message"`
}

type aggregateOutput struct{ Body AggregateBody }

// ScheduledMessage is a message that waits for its time.
type ScheduledMessage struct {
	ID                   gocql.UUID
	Topic, Key           string
	CreatedAt, DeliverAt time.Time
}

func (ep *biographyEndpoints) registerAggregate() {
	huma.Register(ep.api, ep.describe(access.Viewer, huma.Operation{
		OperationID: "get-aggregate", Method: http.MethodGet, Path: "/v1/aggregates/{id}", Summary: "Get the timeline of an aggregate",
		Description: "Its outbox rows, records, dead letters with their changes, and scheduled messages, in one list. Read are up to 10,000 rows, 200 dead letters, 100 scheduled messages, and the newest 100,000 records since its first row or dead letter; gaps lists what was not read.",
	}, 404), ep.getAggregate)
}

func (ep *biographyEndpoints) getAggregate(ctx context.Context, in *aggregateInput) (*aggregateOutput, error) {
	var after AggregateEntry
	if in.Cursor != "" {
		if err := readPosition(ctx, in.Cursor, &after); err != nil {
			return nil, err
		}
		if after.Kind == "" {
			return nil, invalid(ctx, "query.cursor", httpapi.ProblemCursor)
		}
	}
	work, cancel := context.WithTimeout(ctx, biographyTimeout)
	defer cancel()
	a := aggregateReader{biographySources: ep.sources, id: in.ID}
	if err := ep.heavily(work, func() error { return a.read(work) }); err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	if len(a.entries) == 0 && in.Cursor == "" {
		p := newProblem(ctx, httpapi.TypeNotFound, "This aggregate is unknown.")
		if a.unread {
			p = newProblem(ctx, httpapi.TypeUnavailable, "The database has nothing of the aggregate, and the topics cannot be read; retry later.")
		}
		p.Hint = strings.Join(a.gaps, " ")
		return nil, p
	}
	slices.SortStableFunc(a.entries, newerEntry)
	entries := append([]AggregateEntry{}, a.entries...)
	if in.Cursor != "" {
		entries = slices.DeleteFunc(entries, func(e AggregateEntry) bool { return newerEntry(e, after) <= 0 })
	}
	out := &aggregateOutput{AggregateBody{AggregateID: in.ID, Entries: entries, Gaps: append([]string{}, a.gaps...)}}
	if len(entries) > in.Limit {
		out.Body.Entries = entries[:in.Limit]
		last := entries[in.Limit-1]
		last.Detail = "" // it may be long, and has no part in the order
		out.Body.Next = in.Next(formatPosition(last))
	}
	return out, nil
}

// newerEntry orders entries, the newest first. Of one time the later step is first.
func newerEntry(x, y AggregateEntry) int {
	if (x.At == nil) != (y.At == nil) {
		return before(x.At, y.At)
	}
	return cmp.Or(before(y.At, x.At), cmp.Compare(y.Sequence, x.Sequence), stepOrder(y.Kind)-stepOrder(x.Kind), publishedLast(y.Kind)-publishedLast(x.Kind),
		cmp.Compare(x.EventID, y.EventID), cmp.Compare(x.What, y.What), cmp.Compare(x.MessageID, y.MessageID), cmp.Compare(x.place(), y.place()))
}

// place is where a record is, as text.
func (e *AggregateEntry) place() string {
	if e.Partition == nil || e.Offset == nil {
		return ""
	}
	return fmt.Sprintf("%s %d %d", e.Topic, *e.Partition, *e.Offset)
}

// aggregateReader collects the known facts of one aggregate.
type aggregateReader struct {
	*biographySources
	id string

	mu      sync.Mutex
	entries []AggregateEntry
	gaps    []string
	first   time.Time // of its rows and dead letters; zero if there are none
	unread  bool      // the topics could not be read
}

func (a *aggregateReader) add(e AggregateEntry) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if e.At != nil && e.Kind != "scheduled" && (a.first.IsZero() || e.At.Before(a.first)) {
		a.first = *e.At
	}
	a.entries = append(a.entries, e)
}

func (a *aggregateReader) gap(format string, args ...any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.gaps = append(a.gaps, fmt.Sprintf(format, args...))
}

// read reads all sources: the topics after the others, which contain the time from which they are read. Without
// the dead letters it returns the error; other sources are gaps.
func (a *aggregateReader) read(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	for _, table := range a.tables {
		g.Go(func() error { a.readRows(gctx, table); return nil })
	}
	g.Go(func() error { return a.readDeadLetters(gctx) })
	g.Go(func() error { a.readScheduled(gctx); return nil })
	if err := g.Wait(); err != nil {
		return err
	}
	a.readTopics(ctx)
	slices.Sort(a.gaps)
	return nil
}

func (a *aggregateReader) readRows(ctx context.Context, table Table) {
	err := a.readPartition(ctx, table, &outbox.Event{AggregateID: outbox.IDFromText(a.id)}, func(row *storedRow) bool {
		if row.AggregateID.String() == a.id { // a partition may have several aggregates
			detail := "outbox row in " + row.table + row.state()
			if !row.DeliverAt.IsZero() {
				detail += "; not before " + row.DeliverAt.UTC().Format(time.RFC3339)
			}
			a.add(AggregateEntry{Kind: "stored", What: "stored", At: row.at(), EventID: row.ID.String(), EventType: row.Type, Sequence: row.Sequence, Detail: detail})
		}
		return true
	})
	unknown, byUnknown := errors.AsType[*rows.UnknownKeyError](err)
	switch {
	case byUnknown:
		a.gap("%s was not read: it is not partitioned by the aggregate alone (column %s).", table, unknown.Column)
	case errors.Is(err, errManyRows):
		a.gap("Only the first %d of its rows in %s were read.", maxRows, table)
	case err != nil:
		a.gap("%s was not read: %v.", table, err)
	}
}

func (a *aggregateReader) readDeadLetters(ctx context.Context) error {
	found, more, err := a.deadLetters.ListFirst(ctx, dlq.Filter{Aggregate: a.id}, aggregateDeadLetters)
	if err != nil {
		return err
	}
	if more {
		a.gap("Only its %d latest dead letters were read.", aggregateDeadLetters)
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(historiesAtOnce)
	for i := range found {
		g.Go(func() error {
			l := &found[i]
			history, err := a.deadLetters.History(gctx, l.EventID)
			if err != nil && !errors.Is(err, dlq.ErrNotFound) { // a purged one has none
				return err
			}
			a.addDeadLetter(l, history)
			return nil
		})
	}
	return g.Wait()
}

// addDeadLetter adds a dead letter with its history, which may be empty.
func (a *aggregateReader) addDeadLetter(l *dlq.DeadLetter, history []dlq.Change) {
	entry := AggregateEntry{
		Kind: "dead_letter", What: "became a dead letter", At: when(l.FirstFailedAt), EventID: cmp.Or(l.Metadata["id_text"], l.EventID.String()), EventType: l.EventType, Sequence: l.Sequence,
		DeadLetterID: l.EventID.String(), Topic: l.Topic, Detail: fmt.Sprintf("%s; now %s", l.ErrorClass, l.Status),
	}
	if name, ok := dlq.ParseSubscription(l.Table); ok {
		entry.EventID, entry.What = l.Metadata["event_id"], "became a dead letter of subscription "+name
	}
	a.add(entry)
	entry.Topic = ""
	for i := range history {
		if c := &history[i]; c.Action != dlq.ActionWrite {
			entry.Kind, entry.What, entry.At, entry.Detail = "dead_letter_changed", string(c.Action), when(c.At), changeDetail(c)
			if c.Action.Edits() {
				entry.Kind = "edited"
			}
			a.add(entry)
		}
	}
}

func (a *aggregateReader) readScheduled(ctx context.Context) {
	if a.scheduled == nil {
		return
	}
	found, more, err := a.scheduled(ctx, a.id, aggregateScheduled)
	switch {
	case err != nil:
		a.gap("The scheduled messages were not read: %v.", err)
	case more:
		a.gap("Not all scheduled messages were read: there may be others with this key.")
	}
	for i := range found {
		m := &found[i]
		detail := "submitted at " + m.CreatedAt.UTC().Format(time.RFC3339)
		if m.Key != "" {
			detail += fmt.Sprintf("; key %q", m.Key)
		}
		a.add(AggregateEntry{Kind: "scheduled", What: "is due", At: when(m.DeliverAt), MessageID: m.ID.String(), EventType: m.Topic, Topic: m.Topic, Detail: detail})
	}
}

// readTopics adds the records of the aggregate since its first row or dead letter, of the newest
// topicsRecords.
func (a *aggregateReader) readTopics(ctx context.Context) {
	if a.kafka == nil {
		a.gap("The topics were not read, because no broker is configured.")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, topicsTime)
	defer cancel()
	from := time.Unix(0, 0)
	if !a.first.IsZero() {
		from = a.first.Add(-topicsMargin)
	}
	read := 0
	all, _, err := a.readSince(ctx, a.startTopics(ctx), from, topicsRecords, func(r *kgo.Record) error {
		read++
		a.addRecord(r)
		return nil
	})
	a.unread = err != nil && !errors.Is(err, errNoTopics)
	switch {
	case err != nil && read > 0:
		a.gap("Not all records were read, only %d: %v.", read, err)
	case err != nil:
		a.gap("The topics were not read: %v.", err)
	case all.Size() > topicsRecords:
		a.gap("Only the newest %d of %d records since %s were read.", topicsRecords, all.Size(), from.UTC().Format(time.RFC3339))
	}
}

// addRecord adds a record if it is of the aggregate.
func (a *aggregateReader) addRecord(r *kgo.Record) {
	e, err := outbox.FromRecord(r.Key, r.Value, r.Headers)
	if err != nil || e.AggregateID.String() != a.id {
		return
	}
	a.add(AggregateEntry{
		Kind: "published", What: "published", At: when(kafkarecord.At(r)), EventID: e.ID.String(), EventType: e.Type, Sequence: e.Sequence,
		Topic: r.Topic, Partition: &r.Partition, Offset: &r.Offset, Detail: fmt.Sprintf("%d bytes, key %q", len(r.Value), string(r.Key)),
	})
}
