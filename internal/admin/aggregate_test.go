package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/scylla-outbox/scylla-outbox/dlq"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/outbox"
)

// storeEvent stores an event of an aggregate.
func (b *fixture) storeEvent(t *testing.T, aggregate string, seq int64) outbox.Event {
	t.Helper()
	e := outbox.Event{
		ID: outbox.NewID(), AggregateID: outbox.IDFromText(aggregate), Sequence: seq, AggregateType: "thing", Type: "ThingHappened", Payload: []byte("{}"), CreatedAt: time.Now(),
	}
	batch := b.Session.Batch(gocql.LoggedBatch)
	if err := outbox.Append(batch, e); err != nil {
		t.Fatal(err)
	}
	if err := batch.Exec(); err != nil {
		t.Fatal(err)
	}
	return e
}

// The timeline of an aggregate has its rows, records, dead letters with their changes, and scheduled
// messages, newest first, and none of another aggregate.
func TestAggregate_Timeline(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	client := b.broker(t)
	message, due := gocql.MustRandomUUID(), time.Now().Add(time.Hour).UTC().Truncate(time.Millisecond)
	b.reconfigure(t, func(c *Config) {
		c.Scheduled = func(_ context.Context, of string, limit int) ([]ScheduledMessage, bool, error) {
			if of != "a/1" || limit < 1 {
				return nil, false, fmt.Errorf("asked for %q, %d", of, limit)
			}
			return []ScheduledMessage{{ID: message, Topic: "reminders", Key: of, DeliverAt: due}}, true, nil
		}
	})
	first, second := b.storeEvent(t, "a/1", 1), b.storeEvent(t, "a/1", 2)
	publish(t, client, &first)
	other := b.storeEvent(t, "a/2", 1)
	publish(t, client, &other)
	l := testDeadLetter("a/1", 2)
	l.EventID = second.ID.UUID()
	b.writeDeadLetter(t, l, time.Now().Add(time.Second))
	if err := b.store.Discard(t.Context(), l.EventID, dlq.Actor{Name: "eve", Reason: "a test order"}); err != nil {
		t.Fatal(err)
	}
	var got AggregateBody
	b.ask(t, access.Viewer, "GET", "/v1/aggregates/a%2F1", "").into(t, http.StatusOK, &got)
	var kinds []string
	for i, e := range got.Entries {
		kinds = append(kinds, fmt.Sprintf("%s %d", e.Kind, e.Sequence))
		if e.At == nil || i > 0 && got.Entries[i-1].At.Before(*e.At) {
			t.Errorf("entry %d, %+v, is not in order", i, e)
		}
		switch e.Kind {
		case "published":
			if e.Topic != "things" || e.Partition == nil || e.Offset == nil || e.EventID != first.ID.String() {
				t.Errorf("the record is %+v", e)
			}
		case "dead_letter_changed":
			if e.What != "discard" || !strings.Contains(e.Detail, "a test order") || !strings.Contains(e.Detail, "by eve") || e.DeadLetterID != second.ID.String() {
				t.Errorf("the change is %+v", e)
			}
		}
	}
	slices.Sort(kinds)
	if want := []string{"dead_letter 2", "dead_letter_changed 2", "published 1", "scheduled 0", "stored 1", "stored 2"}; !slices.Equal(kinds, want) || got.Next != "" {
		t.Errorf("the timeline is %q, next %q, want %q", kinds, got.Next, want)
	}
	if !slices.ContainsFunc(got.Gaps, func(g string) bool { return strings.Contains(g, "Not all scheduled messages") }) {
		t.Errorf("gaps: %q", got.Gaps)
	}
	all, cursor := got.Entries, ""
	for at := 0; at < len(all); at += 2 {
		var page AggregateBody
		b.ask(t, access.Viewer, "GET", "/v1/aggregates/a%2F1?limit=2&cursor="+cursor, "").into(t, http.StatusOK, &page)
		if cursor = page.Next; len(page.Entries) != 2 || (cursor == "") != (at == len(all)-2) {
			t.Fatalf("the page from entry %d is %+v, next %q", at, page.Entries, cursor)
		}
		for i := range page.Entries {
			if newerEntry(page.Entries[i], all[at+i]) != 0 {
				t.Errorf("entry %d is %+v, want %+v", at+i, page.Entries[i], all[at+i])
			}
		}
	}
	b.ask(t, access.Viewer, "GET", "/v1/aggregates/a%2F1?cursor=e30", "").problemIn(t, http.StatusUnprocessableEntity)
}

// An unknown aggregate is not found; what cannot be read is named, and the rest is shown.
func TestAggregate_Gaps(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) {
		c.Scheduled = func(context.Context, string, int) ([]ScheduledMessage, bool, error) {
			return nil, false, errors.New("no such component")
		}
		c.Tables = []Table{{Keyspace: "outbox", Name: "outbox_messages"}, {Keyspace: "outbox", Name: "missing"}}
	})
	p := b.ask(t, access.Viewer, "GET", "/v1/aggregates/none", "").problemIn(t, http.StatusNotFound)
	if !strings.Contains(p.Hint, "no broker is configured") || !strings.Contains(p.Hint, "no such component") {
		t.Errorf("of nothing: %+v", p)
	}
	b.storeEvent(t, "a", 1)
	var got AggregateBody
	b.ask(t, access.Viewer, "GET", "/v1/aggregates/a", "").into(t, http.StatusOK, &got)
	if len(got.Entries) != 1 || len(got.Gaps) != 3 || !strings.Contains(strings.Join(got.Gaps, " "), "outbox.missing was not read") {
		t.Errorf("the timeline is %+v", got)
	}
}

// The newest events have their state: published with the place, a dead letter, or waiting.
func TestRecentEvents(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	client := b.broker(t)
	events := []outbox.Event{b.storeEvent(t, "a", 1), b.storeEvent(t, "a", 2), b.storeEvent(t, "b", 1)}
	r := publish(t, client, &events[0])
	l := testDeadLetter("a", 2)
	l.EventID = events[1].ID.UUID()
	b.writeDeadLetter(t, l, time.Time{})
	now := time.Now()
	var asked []time.Duration
	b.reconfigure(t, func(c *Config) {
		c.Written = func(_ context.Context, table string, since time.Time, limit int) (out []WrittenEvent, err error) {
			if table != testTable || limit != maxWritten {
				return nil, fmt.Errorf("asked for %s, %d", table, limit)
			}
			asked = append(asked, now.Sub(since).Round(time.Minute))
			for i := range events {
				e := &events[i]
				if at := now.Add(time.Duration(i-30) * time.Minute); at.After(since) {
					out = append(out, WrittenEvent{ID: e.ID.String(), AggregateID: e.AggregateID.String(), Type: e.Type, Sequence: e.Sequence, At: at})
				}
			}
			return out, nil
		}
	})
	list := func(query string) (got RecentEventsBody) {
		t.Helper()
		b.ask(t, access.Viewer, "GET", "/v1/events"+query, "").into(t, http.StatusOK, &got)
		return got
	}
	got := list("")
	var states []string
	for _, e := range got.Events {
		states = append(states, e.State)
	}
	if want := []string{"waiting", "dead_letter", "published"}; !slices.Equal(states, want) || got.Next != "" || len(got.Gaps) > 0 {
		t.Fatalf("the events are %+v, want them %q", got, want)
	}
	if e := got.Events[2]; e.Topic != "things" || *e.Partition != r.Partition || *e.Offset != r.Offset || e.AggregateID != "a" || e.Table != testTable {
		t.Errorf("the published event is %+v, want it at %d@%d", e, r.Partition, r.Offset)
	}
	if e := got.Events[1]; e.DeadLetterID != events[1].ID.String() {
		t.Errorf("the dead letter is %+v", e)
	}
	if len(asked) != len(recentAges) || asked[len(asked)-1] != time.Hour {
		t.Errorf("the log was read of the last %v, want more each time, up to an hour", asked)
	}
	if got := list("?state=waiting"); len(got.Events) != 1 || got.Events[0].EventID != events[2].ID.String() {
		t.Errorf("the waiting events are %+v", got.Events)
	}
	first := list("?limit=2")
	if len(first.Events) != 2 || first.Next == "" || first.Events[0].EventID != events[2].ID.String() {
		t.Errorf("two of them are %+v, next %q", first.Events, first.Next)
	}
	if rest := list("?limit=2&cursor=" + first.Next); len(rest.Events) != 1 || rest.Next != "" || rest.Events[0].EventID != events[0].ID.String() || rest.Events[0].State != "published" {
		t.Errorf("the next page is %+v, next %q", rest.Events, rest.Next)
	}
	b.ask(t, access.Viewer, "GET", "/v1/events?cursor=e30", "").problemIn(t, http.StatusUnprocessableEntity)
	if got := list("?since=2126-01-02T03:04:05Z"); len(got.Events) != 0 {
		t.Errorf("of the future there are %+v", got.Events)
	}
}

// An event that was written again lately has the state of its old record.
func TestRecentEvents_WrittenAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	client, e, now := b.broker(t), b.storeEvent(t, "a", 1), time.Now()
	if err := client.ProduceSync(t.Context(), &kgo.Record{
		Topic: "things", Timestamp: now.Add(-30 * time.Minute), Key: e.Key(), Value: e.Payload, Headers: outbox.AppendHeaders[kgo.RecordHeader](nil, &e, "/test"),
	}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	b.reconfigure(t, func(c *Config) {
		c.Written = func(_ context.Context, _ string, since time.Time, _ int) ([]WrittenEvent, error) {
			w := WrittenEvent{ID: e.ID.String(), AggregateID: "a", Type: e.Type, Sequence: 1, At: now}
			if first := now.Add(-30 * time.Minute); first.After(since) {
				w.First = first
			}
			return []WrittenEvent{w}, nil
		}
	})
	var got RecentEventsBody
	b.ask(t, access.Viewer, "GET", "/v1/events", "").into(t, http.StatusOK, &got)
	if len(got.Events) != 1 || got.Events[0].State != "published" {
		t.Errorf("the list is %+v, want the event as published", got)
	}
}

// While the topics cannot be read, nobody knows whether an event waits: only that it is a dead letter.
func TestRecentEvents_UnknownWithoutTheBroker(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	client := b.broker(t)
	events := []outbox.Event{b.storeEvent(t, "a", 1), b.storeEvent(t, "a", 2)}
	publish(t, client, &events[0])
	l := testDeadLetter("a", 2)
	l.EventID = events[1].ID.UUID()
	b.writeDeadLetter(t, l, time.Time{})
	b.reconfigure(t, func(c *Config) {
		c.Kafka = unreachable{}
		c.Written = func(context.Context, string, time.Time, int) (out []WrittenEvent, err error) {
			for i := range events {
				out = append(out, WrittenEvent{ID: events[i].ID.String(), AggregateID: "a", Type: events[i].Type, Sequence: events[i].Sequence, At: time.Now().Add(time.Duration(i) * time.Second)})
			}
			return out, nil
		}
	})
	for query, want := range map[string]string{"": "[dead_letter unknown]", "?state=waiting": "[]", "?state=unknown": "[unknown]"} {
		var got RecentEventsBody
		b.ask(t, access.Viewer, "GET", "/v1/events"+query, "").into(t, http.StatusOK, &got)
		states := []string{}
		for _, e := range got.Events {
			states = append(states, e.State)
		}
		if fmt.Sprint(states) != want || len(got.Gaps) != 1 {
			t.Errorf("events%s are %v, gaps %q, want %s", query, states, got.Gaps, want)
		}
	}
}

// Without the topics an id that is found nowhere else may exist: it is not called unknown.
func TestEvents_MayExistWithoutTheBroker(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.broker(t)
	id := outbox.NewID().String()
	for _, path := range []string{"/v1/events/" + id, "/v1/aggregates/" + id} {
		b.ask(t, access.Viewer, "GET", path, "").problemIn(t, http.StatusNotFound)
	}
	b.reconfigure(t, func(c *Config) { c.Kafka = unreachable{} })
	for _, path := range []string{"/v1/events/" + id, "/v1/aggregates/" + id} {
		b.ask(t, access.Viewer, "GET", path, "").problemIn(t, http.StatusServiceUnavailable)
	}
}

// unreachable is a broker that nobody can connect to.
type unreachable struct{}

func (unreachable) Client(...kgo.Opt) (*kgo.Client, error) {
	return nil, errors.New("no broker answers")
}

// countedKafka counts its clients.
type countedKafka struct {
	Kafka
	clients int
}

func (k *countedKafka) Client(opts ...kgo.Opt) (*kgo.Client, error) {
	k.clients++
	return k.Kafka.Client(opts...)
}

// However often the log is read until there are enough events, the topics are read once.
func TestRecentEvents_ReadTheTopicsOnce(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	b.broker(t)
	kafka := &countedKafka{Kafka: b.cfg.Kafka}
	e := b.storeEvent(t, "a", 1)
	logs := 0
	b.reconfigure(t, func(c *Config) {
		c.Kafka = kafka
		c.Written = func(context.Context, string, time.Time, int) ([]WrittenEvent, error) {
			logs++
			return []WrittenEvent{{ID: e.ID.String(), AggregateID: e.AggregateID.String(), Type: e.Type, Sequence: e.Sequence, At: time.Now()}}, nil
		}
	})
	var got RecentEventsBody
	b.ask(t, access.Viewer, "GET", "/v1/events", "").into(t, http.StatusOK, &got)
	if len(got.Events) != 1 || len(got.Gaps) > 0 || logs != len(recentAges) || kafka.clients != 1 {
		t.Errorf("%+v after %d reads of the log and %d of the topics, want %d and 1", got, logs, kafka.clients, len(recentAges))
	}
}

// Without a broker the list is as long as with one.
func TestRecentEvents_WithoutABroker(t *testing.T) {
	t.Parallel()
	b := setup(t, nil)
	now := time.Now()
	b.reconfigure(t, func(c *Config) {
		c.Written = func(_ context.Context, _ string, since time.Time, _ int) (out []WrittenEvent, err error) {
			for _, age := range []time.Duration{0, time.Minute, 30 * time.Minute} {
				if at := now.Add(-age); at.After(since) {
					out = append(out, WrittenEvent{ID: outbox.NewID().String(), AggregateID: "a", Type: "OrderCreated", At: at})
				}
			}
			return out, nil
		}
	})
	var got RecentEventsBody
	b.ask(t, access.Viewer, "GET", "/v1/events", "").into(t, http.StatusOK, &got)
	if len(got.Events) != 3 || len(got.Gaps) != 1 || !strings.Contains(got.Gaps[0], "no broker") {
		t.Errorf("the list is %+v, want 3 events and that no broker is configured", got)
	}
}
