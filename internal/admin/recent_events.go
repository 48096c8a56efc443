package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/cached"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/outbox/rows"
)

// maxWritten bounds the events of a table that are read from the CDC log, and recentAge how old the
// oldest are that are listed without a time. recordsMargin is how long before the oldest event its record is
// searched, because clocks differ; many events are published in a minute.
const (
	maxWritten    = 10_000
	recentAge     = time.Hour
	recordsMargin = 5 * time.Second
)

// recentKept is how long a list is kept for all callers: open pages read it every five seconds.
const (
	recentKept    = 3 * time.Second
	maxRecentKept = 32
	// recentHolder has the places of these lists among the expensive reads. No principal has its name.
	recentHolder = "lists of recent events"
)

// recentAges are the ages up to which the log is read until there are enough events: of a busy table
// the newest seconds are enough.
var recentAges = []time.Duration{2 * time.Second, 15 * time.Second, 2 * time.Minute, 15 * time.Minute, recentAge}

// recentSlow is the time of a read of the log from which on the next one is that of all recent events.
const recentSlow = 250 * time.Millisecond

// The states of events in the list.
const (
	eventWaiting    = "waiting"
	eventPublished  = "published"
	eventDeadLetter = "dead_letter"
	eventUnknown    = "unknown"
)

type recentEventsInput struct {
	State string    `query:"state" enum:"waiting,published,dead_letter,unknown" doc:"Events in this state only"`
	Since time.Time `query:"since" doc:"Events that were written at this time or later; default: the last hour or, of a part of the log that no relay reads, since its last heartbeat"`
	Limit int       `query:"limit" minimum:"1" maximum:"1000" default:"100"`
	httpapi.Page
}

// recentEventsQuery is a request with its cursor decoded.
type recentEventsQuery struct {
	*recentEventsInput
	after eventPlace
}

// eventPlace is the cursor of the list: the last event of a page.
type eventPlace struct {
	At    time.Time `json:"at"`
	ID    string    `json:"id"`
	Since time.Time `json:"since"` // the first request's, so that pages agree
}

// RecentEvent is an event of the outbox in the list of recent ones.
type RecentEvent struct {
	EventID      string    `json:"event_id"`
	Table        string    `json:"table" doc:"Its outbox table, keyspace.table"`
	AggregateID  string    `json:"aggregate_id"`
	EventType    string    `json:"event_type"`
	Sequence     int64     `json:"sequence,omitempty"`
	WrittenAt    time.Time `json:"written_at"`
	State        string    `json:"state" enum:"waiting,published,dead_letter,unknown" doc:"waiting: it has no record and no dead letter; unknown: it has no dead letter, and not all records could be read"`
	Topic        string    `json:"topic,omitempty"`
	Partition    *int32    `json:"partition,omitempty"`
	Offset       *int64    `json:"offset,omitempty"`
	DeadLetterID string    `json:"dead_letter_id,omitempty" format:"uuid"`

	first time.Time // its record is not older
}

// RecentEventsBody are the newest events of the outbox.
type RecentEventsBody struct {
	Events []RecentEvent `json:"events" nullable:"false" doc:"Newest first"`
	Since  time.Time     `json:"since" doc:"Time since which the CDC log was read"`
	Next   string        `json:"next,omitempty" doc:"Cursor of the next page; absent on the last page"`
	Gaps   []string      `json:"gaps" nullable:"false" doc:"What was not read, with the reasons"`
}

type recentEventsOutput struct{ Body RecentEventsBody }

// WrittenEvent is an event in the CDC log of an outbox table.
type WrittenEvent struct {
	ID, AggregateID, Type string
	Sequence              int64
	At                    time.Time // its last write
	First                 time.Time // if it was written before
}

// recentEventEndpoints list the newest events.
type recentEventEndpoints struct {
	*operations
	sources *biographySources
	status  *statusEndpoints
	written func(ctx context.Context, table string, since time.Time, limit int) ([]WrittenEvent, error)

	mu   sync.Mutex
	kept map[string]*cached.Value[RecentEventsBody] // by the query
}

// keeping returns the list of a query, which concurrent and later callers share.
func (ep *recentEventEndpoints) keeping(q *recentEventsQuery) *cached.Value[RecentEventsBody] {
	key := fmt.Sprintf("%s %d %d %s", q.State, q.Since.UnixNano(), q.Limit, q.Cursor)
	ep.mu.Lock()
	defer ep.mu.Unlock()
	v := ep.kept[key]
	if v == nil {
		if len(ep.kept) >= maxRecentKept || ep.kept == nil {
			ep.kept = make(map[string]*cached.Value[RecentEventsBody])
		}
		v = cached.New(recentKept, func(ctx context.Context) (b RecentEventsBody, err error) {
			ctx, cancel := context.WithTimeout(ctx, biographyTimeout)
			defer cancel()
			// It is no read of the first caller, whose other reads would keep all who share it waiting.
			err = ep.heavilyFor(ctx, recentHolder, func() error { return ep.read(ctx, q, time.Now(), &b) })
			return b, err
		})
		ep.kept[key] = v
	}
	return v
}

func (ep *recentEventEndpoints) register() {
	huma.Register(ep.api, ep.describe(access.Viewer, huma.Operation{
		OperationID: "list-events", Method: http.MethodGet, Path: "/v1/events", Summary: "List the newest events of the outbox with their state",
		Description: "Events of the CDC log, with their records and dead letters: the ones without either wait. Read are up to 10,000 events of each table and the newest 100,000 records; gaps lists what was not read.",
	}), ep.list)
}

func (ep *recentEventEndpoints) list(ctx context.Context, in *recentEventsInput) (*recentEventsOutput, error) {
	q := recentEventsQuery{recentEventsInput: in}
	if in.Cursor != "" {
		if err := readPosition(ctx, in.Cursor, &q.after); err != nil {
			return nil, err
		}
		if q.after.At.IsZero() || q.after.Since.IsZero() {
			return nil, invalid(ctx, "query.cursor", httpapi.ProblemCursor)
		}
	}
	out := &recentEventsOutput{RecentEventsBody{Events: []RecentEvent{}, Gaps: []string{}}}
	if ep.written == nil {
		out.Body.Gaps = append(out.Body.Gaps, "This server does not read the CDC log.")
		return out, nil
	}
	work, cancel := context.WithTimeout(ctx, biographyTimeout)
	defer cancel()
	var err error
	if out.Body, err = ep.keeping(&q).Get(work); err != nil {
		return nil, ep.toProblem(ctx, err, false)
	}
	return out, nil
}

// read lists the events up to the first age at which the log has enough, or all of them where the database is
// slow. The topics and the dead letters are read once.
func (ep *recentEventEndpoints) read(ctx context.Context, in *recentEventsQuery, now time.Time, b *RecentEventsBody) error {
	began := time.Now()
	topics := ep.sources.startTopics(ctx)
	heartbeats, err := ep.status.relays.read(ctx)
	if err != nil {
		return err
	}
	oldest := cmp.Or(in.after.Since, in.Since)
	if oldest.IsZero() {
		oldest = now.Add(-recentAge)
		for _, of := range ep.status.unread(currentRelays(heartbeats)) {
			if !of.Since.IsZero() && of.Since.Before(oldest) {
				oldest = of.Since
			}
		}
	}
	ages := recentAges
	if in.State != "" || time.Since(began) > recentSlow { // few events may have it
		ages = nil
	}
	for _, age := range ages {
		since := now.Add(-age)
		if !since.After(oldest) || in.Cursor != "" && !since.Before(in.after.At) {
			continue
		}
		began = time.Now()
		if ep.readLog(ctx, in, since, b); len(b.Events) > in.Limit || len(b.Gaps) > 0 {
			return ep.complete(ctx, in, oldest, topics, b)
		}
		if time.Since(began) > recentSlow {
			break
		}
	}
	ep.readLog(ctx, in, oldest, b)
	return ep.complete(ctx, in, oldest, topics, b)
}

// readLog replaces the list by that of the events since a time, without their states.
func (ep *recentEventEndpoints) readLog(ctx context.Context, in *recentEventsQuery, since time.Time, b *RecentEventsBody) {
	*b = RecentEventsBody{Events: []RecentEvent{}, Since: since.UTC(), Gaps: []string{}}
	found, errs := make([][]WrittenEvent, len(ep.sources.tables)), make([]error, len(ep.sources.tables))
	var all sync.WaitGroup
	for i, table := range ep.sources.tables {
		all.Go(func() { found[i], errs[i] = ep.written(ctx, table.String(), since, maxWritten) })
	}
	all.Wait()
	for i, table := range ep.sources.tables {
		switch {
		case errs[i] != nil:
			b.Gaps = append(b.Gaps, fmt.Sprintf("%s was not read: %v.", table, errs[i]))
		case len(found[i]) == maxWritten:
			b.Gaps = append(b.Gaps, fmt.Sprintf("Of %s only %d events since %s were read, which may not be the newest.", table, maxWritten, since.UTC().Format(time.RFC3339)))
		}
		for _, e := range found[i] {
			b.Events = append(b.Events, RecentEvent{EventID: e.ID, Table: table.String(), AggregateID: e.AggregateID, EventType: e.Type, Sequence: e.Sequence, WrittenAt: e.At.UTC(), State: eventWaiting, first: cmp.Or(e.First, e.At)})
		}
	}
	if in.Cursor != "" {
		after := RecentEvent{EventID: in.after.ID, WrittenAt: in.after.At}
		b.Events = slices.DeleteFunc(b.Events, func(e RecentEvent) bool { return newerEvent(e, after) <= 0 })
	}
	slices.SortFunc(b.Events, newerEvent)
}

// complete sets the states of the events, and makes them a page. oldest is the time since which all pages
// read.
func (ep *recentEventEndpoints) complete(ctx context.Context, in *recentEventsQuery, oldest time.Time, topics func() ([]string, error), b *RecentEventsBody) error {
	cut := func() {
		if len(b.Events) > in.Limit {
			b.Events = slices.Clone(b.Events[:in.Limit]) // the page is kept, and not all that was read
			last := &b.Events[in.Limit-1]
			b.Next = in.Next(formatPosition(eventPlace{last.WrittenAt, last.EventID, oldest}))
		}
	}
	if in.State == "" {
		cut()
	}
	if len(b.Events) == 0 {
		return nil
	}
	all := ep.findRecords(ctx, topics, b)
	if err := ep.findDeadLetters(ctx, b.Events); err != nil {
		return err
	}
	for i := range b.Events {
		if !all && b.Events[i].State == eventWaiting {
			b.Events[i].State = eventUnknown
		}
	}
	if in.State != "" {
		b.Events = slices.DeleteFunc(b.Events, func(e RecentEvent) bool { return e.State != in.State })
		cut()
	}
	return nil
}

// newerEvent orders events, the newest first.
func newerEvent(x, y RecentEvent) int {
	return cmp.Or(y.WrittenAt.Compare(x.WrittenAt), cmp.Compare(y.EventID, x.EventID))
}

// findRecords sets the places of the events that are in their topics, and reports whether it has read enough to
// know which events are not.
func (ep *recentEventEndpoints) findRecords(ctx context.Context, topics func() ([]string, error), b *RecentEventsBody) bool {
	if ep.sources.kafka == nil {
		b.Gaps = append(b.Gaps, "The topics were not read, because no broker is configured.")
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, topicsTime)
	defer cancel()
	at := make(map[gocql.UUID]*RecentEvent, len(b.Events))
	for i := range b.Events {
		at[rows.IDOf(b.Events[i].EventID)] = &b.Events[i]
	}
	oldest, left := slices.MinFunc(b.Events, func(x, y RecentEvent) int { return x.first.Compare(y.first) }).first, len(at)
	all, _, err := ep.sources.readSince(ctx, topics, oldest.Add(-recordsMargin), topicsRecords, func(r *kgo.Record) error {
		for _, h := range r.Headers {
			if e := at[rows.IDOf(h.Value)]; h.Key == outbox.HeaderID && e != nil && e.State == eventWaiting {
				e.State, e.Topic, e.Partition, e.Offset = eventPublished, r.Topic, &r.Partition, &r.Offset
				if left--; left == 0 {
					return errStopReading
				}
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, errNoTopics):
		b.Gaps = append(b.Gaps, sentence(err.Error()))
		return true
	case err != nil:
		b.Gaps = append(b.Gaps, fmt.Sprintf("Not all records were read: %v.", err))
	case all.Size() > topicsRecords && left > 0:
		b.Gaps = append(b.Gaps, fmt.Sprintf("Only the newest %d of %d records were read.", topicsRecords, all.Size()))
	default:
		return true
	}
	return false
}

// findDeadLetters sets the dead letters of the events without a record.
func (ep *recentEventEndpoints) findDeadLetters(ctx context.Context, events []RecentEvent) error {
	var ids []gocql.UUID
	for i := range events {
		if e := &events[i]; e.State == eventWaiting {
			ids = append(ids, rows.IDOf(e.EventID))
		}
	}
	found, err := ep.sources.deadLetters.ReadMany(ctx, ids)
	if err != nil {
		return err
	}
	for i := range events {
		e := &events[i]
		l, ok := found[rows.IDOf(e.EventID)]
		if !ok || l.Table != e.Table || e.State != eventWaiting {
			continue
		}
		e.DeadLetterID, e.State = l.EventID.String(), eventDeadLetter
		if o := l.Outcome; o.Topic != "" {
			e.State, e.Topic, e.Partition, e.Offset = eventPublished, o.Topic, &o.Partition, &o.Offset
		}
	}
	return nil
}
