package messages

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/schedule"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// setupMany is setup with the operators' routes for bulk operations.
func setupMany(t *testing.T, change ...func(*Config)) *fixture {
	t.Helper()
	b := setup(t, change...)
	mux := http.NewServeMux()
	cfg := huma.DefaultConfig("Messages", "1")
	cfg.CreateHooks = nil
	h := humago.New(mux, cfg)
	NewAPI(b.Service).Register(h)
	NewAPI(b.Service).RegisterMany(h)
	b.handler = access.WithRequestIDs(mux)
	return b
}

// laterMany submits n messages of a client for a topic that are due in an hour.
func (b *fixture) laterMany(t *testing.T, topic, client string, n int) {
	t.Helper()
	items := make([]Item, n)
	for i := range items {
		items[i].NewMessage = NewMessage{Topic: topic, Delay: httpapi.Duration(fmt.Sprintf("1h%dms", i))}
	}
	results, err := b.AcceptBatch(t.Context(), items, Options{Client: client})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range results {
		if r.Err != nil || r.State != Scheduled {
			t.Fatalf("%+v", r)
		}
	}
}

// manyAnswer is the response to a bulk operation.
type manyAnswer struct {
	DryRun  bool `json:"dry_run"`
	Preview Tally
	Result  *Changed
	Next    string
}

func (b *fixture) many(t *testing.T, what, body string) manyAnswer {
	t.Helper()
	r := world.Request(t, b.handler, "POST", "/v1/messages/"+what, body)
	if r.Status != 200 {
		t.Fatalf("%s %s = %d %s", what, body, r.Status, r.Text)
	}
	var out manyAnswer
	if err := json.Unmarshal([]byte(r.Text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// due returns the number of due messages of a topic, and of waiting ones.
func (b *fixture) due(t *testing.T, topic string) (due, waits int) {
	t.Helper()
	now, seen := time.Now(), map[gocql.UUID]bool{}
	for _, v := range b.waiting(t) {
		first := !seen[v.ID] // a failed attempt may leave another slot
		seen[v.ID] = true
		switch {
		case v.Topic != topic || !first:
		case v.DeliverAt.After(now):
			waits++
		default:
			due++
		}
	}
	return due, waits
}

func TestMany_DeliverNowByFilter(t *testing.T) {
	t.Parallel()
	b := setupMany(t)
	b.laterMany(t, "a", "shop", 250)
	b.laterMany(t, "a", "till", 5)
	b.laterMany(t, "b", "shop", 7)
	const filter = `"filter":{"topic":"a","client":"shop"}`

	p := b.many(t, "deliver-now", `{`+filter+`,"dry_run":true}`)
	if !p.DryRun || p.Preview.Messages != 250 || p.Preview.ByTopic["a"] != 250 || p.Preview.ByClient["shop"] != 250 || len(p.Preview.ByClient) != 1 ||
		p.Result != nil || p.Next != "" || p.Preview.Last.Sub(*p.Preview.First) < 249*time.Millisecond {
		t.Errorf("dry run: %+v", p)
	}
	if due, waits := b.due(t, "a"); due != 0 || waits != 255 {
		t.Fatalf("after a dry run %d are due and %d wait", due, waits)
	}
	changed := 0
	for cursor, requests := "", 1; ; requests++ {
		r := b.many(t, "deliver-now", `{`+filter+`,"limit":100,"cursor":"`+cursor+`"}`)
		if r.Result == nil || r.Result.Changed > 100 || r.Result.Gone != 0 || r.Preview.Messages != r.Result.Changed {
			t.Fatalf("request %d: %+v", requests, r)
		}
		changed += r.Result.Changed
		if cursor = r.Next; cursor == "" {
			break
		}
		if requests == 10 {
			t.Fatal("the pages do not end")
		}
	}
	if due, waits := b.due(t, "a"); changed != 250 || due != 250 || waits != 5 {
		t.Errorf("%d were made due; %d are due and %d are waiting, want 250 and the other client's 5", changed, due, waits)
	}
	if due, waits := b.due(t, "b"); due != 0 || waits != 7 {
		t.Errorf("of the other topic %d are due and %d are waiting", due, waits)
	}
	// A repetition changes nothing, and due messages can still be cancelled.
	if r := b.many(t, "deliver-now", `{`+filter+`}`); r.Result.Changed != 0 || r.Preview.Messages != 0 {
		t.Errorf("again: %+v", r)
	}
	if r := b.many(t, "cancel", `{`+filter+`}`); r.Result.Changed != 250 || r.Next != "" {
		t.Errorf("cancel: %+v", r)
	}
	if r := b.many(t, "cancel", `{`+filter+`}`); r.Result.Changed != 0 {
		t.Errorf("cancel again: %+v", r)
	}
	if left := len(b.waiting(t)); left != 12 {
		t.Errorf("%d are waiting, want 12", left)
	}
}

func TestMany_ByTimes(t *testing.T) {
	t.Parallel()
	b := setupMany(t)
	b.laterMany(t, "a", "shop", 3)
	between := time.Now().Truncate(time.Millisecond).Add(2 * time.Millisecond) // messages have no finer times
	for time.Now().Before(between) {
		time.Sleep(time.Millisecond)
	}
	if _, err := b.Accept(t.Context(), NewMessage{Topic: "a", Delay: "2h"}, Options{Client: "shop"}); err != nil {
		t.Fatal(err)
	}
	at := func(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }
	for filter, want := range map[string]int{
		`"created_until":"` + at(between) + `"`:                3,
		`"created_since":"` + at(between) + `"`:                1,
		`"until":"` + at(time.Now().Add(90*time.Minute)) + `"`: 3,
		`"since":"` + at(time.Now().Add(90*time.Minute)) + `"`: 1,
		`"client":"till"`: 0,
		`"key":"k"`:       0,
		`"topic":"a"`:     4,
	} {
		if p := b.many(t, "cancel", `{"filter":{`+filter+`},"dry_run":true}`); p.Preview.Messages != want {
			t.Errorf("%s: %+v, want %d", filter, p.Preview, want)
		}
	}
}

func TestMany_RefusesAMissingFilter(t *testing.T) {
	t.Parallel()
	b := setupMany(t)
	b.laterMany(t, "a", "shop", 2)
	for _, body := range []string{
		`{}`, `{"filter":{}}`, `{"filter":{"topics":"a"}}`, `{"filter":{"topic":"a"},"limit":0}`, `{"filter":{"topic":"a"},"limit":1001}`,
		`{"filter":{"topic":"a"},"rate":0}`, `{"filter":{"topic":"a"},"rate":-1}`, `{"filter":{"topic":"a"},"rate":0.05}`,
		`{"filter":{"topic":"a"},"cursor":"` + httpapi.Cursor(formatPosition(schedule.Position{DeliverAt: time.UnixMilli(-1 << 50)}), "a", "", "") + `"}`, `{"filter":{"topic":"a"},"cursor":"x"}`,
		`{"filter":{"topic":"a"},"cursor":"` + httpapi.Cursor(formatPosition(schedule.Position{DeliverAt: time.Now()}), "b", "", "") + `"}`,
		`{"filter":{"since":"2001-01-01T00:00:00Z"}}`, `{"filter":{"until":"soon"}}`,
	} {
		for _, what := range []string{"deliver-now", "cancel"} {
			if r := world.Request(t, b.handler, "POST", "/v1/messages/"+what, body); r.Status != 422 {
				t.Errorf("%s %s = %d %s, want 422", what, body, r.Status, r.Text)
			}
		}
	}
	if due, waits := b.due(t, "a"); due != 0 || waits != 2 {
		t.Errorf("%d are due and %d wait", due, waits)
	}
	// The clients' API does not have the operators' routes.
	if r := world.Request(t, newHandler(b.Service), "POST", "/v1/messages/cancel", `{"filter":{"topic":"a"}}`); r.Status != http.StatusMethodNotAllowed && r.Status != 404 {
		t.Errorf("cancel by the callers' API = %d %s", r.Status, r.Text)
	}
}

// The database becomes unavailable during a change: the finished part is kept,
// and the same request completes the rest.
func TestMany_AgainAfterAnOutage(t *testing.T) {
	t.Parallel()
	b := setupMany(t, func(c *Config) {
		c.Breaker.Failures, c.Breaker.MinCalls = 1_000_000, 1_000_000
	})
	b.laterMany(t, "a", "shop", 60)
	b.brief()
	const body = `{"filter":{"topic":"a"}}`
	b.Node.Faults().MustAdd(faults.Rule{Match: faults.Match{Kinds: []engine.OpKind{engine.OpCAS}}, Skip: 20, Effect: faults.Effect{Failure: faults.Unavailable(0, 1)}})
	r := world.Request(t, b.handler, "POST", "/v1/messages/deliver-now", body)
	if r.Status != 503 || r.Body["outcome_unknown"] != true || r.Header.Get("Retry-After") == "" {
		t.Errorf("deliver-now = %d %v %s", r.Status, r.Header, r.Text)
	}
	result, _ := r.Body["result"].(map[string]any)
	part, _ := result["changed"].(float64)
	if part == 0 || part >= 60 {
		t.Errorf("the result of the finished part is %v: %s", result, r.Text)
	}
	b.Node.Faults().Clear()
	if p := b.many(t, "cancel", `{"filter":{"topic":"a"},"dry_run":true}`); p.Preview.Messages != 60 {
		t.Errorf("%d messages are counted after attempts that failed, want each once, 60", p.Preview.Messages)
	}
	if r := b.many(t, "deliver-now", body); r.Next != "" || r.Result.Changed > 60-int(part) {
		t.Errorf("again after %v: %+v", part, r)
	}
	if due, waits := b.due(t, "a"); due != 60 || waits != 0 {
		t.Errorf("%d are due and %d are waiting, want all due", due, waits)
	}
}

// The rate applies from the first message on, also across calls; a call whose
// time ends before a message's turn skips none.
func TestMany_TheFirstWaitsForTheRateToo(t *testing.T) {
	t.Parallel()
	b := setupMany(t)
	b.laterMany(t, "a", "shop", 5)
	many := Many{Filter: schedule.Filter{Topic: "a", Until: time.Now().Add(2 * time.Hour)}}
	for _, rate := range []float64{MinRate, 1} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, done, rest, err := b.DeliverManyNow(ctx, many, MaxMany, rate)
		cancel()
		if err == nil || done.Changed != 0 {
			t.Errorf("at %g/s in less than a second: %+v, error %v; want none and an error", rate, done, err)
		}
		many.After = rest.Next
	}
	if _, done, rest, err := b.DeliverManyNow(t.Context(), many, MaxMany, 0); done.Changed != 5 || rest.More || err != nil {
		t.Errorf("the remaining ones: %+v, %v", done, err)
	}
}

// The client disconnects during the change: the audit trail records the
// finished part, with an unknown outcome.
func TestMany_CallerHangsUp(t *testing.T) {
	t.Parallel()
	b := setupMany(t)
	b.laterMany(t, "a", "shop", 5)
	ctx, hangUp := context.WithCancel(t.Context())
	changes := 0
	change := func(context.Context, Many, int, float64) (Tally, Changed, Rest, error) {
		changes++
		hangUp()
		return NewTally(), Changed{Changed: 3}, Rest{}, ctx.Err()
	}
	in := new(manyInput)
	in.Body.Filter.Topic = "a"
	_, err := NewAPI(b.Service).changeMany(ctx, "cancel-messages", "cancelled", in, true, change)
	p, ok := errors.AsType[*messageProblem](err)
	if !ok || changes != 1 || p.Status != httpapi.StatusHungUp || !p.OutcomeUnknown || !strings.Contains(p.Detail, "3 messages were cancelled before") {
		t.Errorf("%+v", err)
	}
}

// The names in a preview are bounded.
func TestTally_IsBounded(t *testing.T) {
	t.Parallel()
	tally := NewTally()
	for i := range 1000 {
		tally.add(&schedule.Message{ID: gocql.UUID{1}, Topic: fmt.Sprint("t", i), Client: "c", DeliverAt: time.Unix(int64(i), 0)})
	}
	if len(tally.ByTopic) != maxTallied+1 || tally.ByTopic[""] != 1000-maxTallied || tally.ByClient["c"] != 1000 || tally.Messages != 1000 {
		t.Errorf("%d topics, %d beside them", len(tally.ByTopic), tally.ByTopic[""])
	}
}

// The list has the messages that the filter of a bulk change selects, in pages, and for operators
// alone the clients.
func TestMany_List(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mux := http.NewServeMux()
	NewAPI(b.Service).RegisterKept(humago.New(mux, huma.DefaultConfig("Messages", "1")))
	b.handler = access.WithRequestIDs(mux)
	b.laterMany(t, "a", "shop", 5)
	b.laterMany(t, "a", "till", 2)
	if _, err := b.Accept(t.Context(), NewMessage{Topic: "b", Key: "k", Delay: "3h"}, Options{Client: "shop"}); err != nil {
		t.Fatal(err)
	}
	type page struct {
		Messages []messageBody
		Next     string
	}
	list := func(query string) (p page) {
		t.Helper()
		r := world.Request(t, b.handler, "GET", "/v1/messages?state=scheduled&"+query, "")
		if err := json.Unmarshal([]byte(r.Text), &p); err != nil || r.Status != 200 {
			t.Fatalf("%s = %d %s", query, r.Status, r.Text)
		}
		return p
	}
	at := func(at time.Time) string { return at.UTC().Format(time.RFC3339Nano) }
	for query, want := range map[string]int{
		"": 8, "topic=a": 7, "client=shop": 6, "topic=a&client=till": 2, "key=k": 1, "topic=none": 0,
		"since=" + at(time.Now().Add(2*time.Hour)): 1, "until=" + at(time.Now().Add(2*time.Hour)): 7,
		"created_since=" + at(time.Now().Add(-time.Hour)): 8, "created_since=" + at(time.Now().Add(time.Hour)): 0,
		"created_until=" + at(time.Now().Add(-time.Hour)): 0, "created_until=" + at(time.Now().Add(time.Hour)): 8,
	} {
		p := list(query)
		if len(p.Messages) != want || p.Next != "" {
			t.Errorf("%s: %d messages, next %q, want %d", query, len(p.Messages), p.Next, want)
		}
		for _, m := range p.Messages {
			if m.Client == "" || m.State != Scheduled || m.CreatedAt.IsZero() || !m.DeliverAt.After(m.CreatedAt) {
				t.Errorf("%s: %+v", query, m)
			}
		}
	}
	seen, last := map[string]bool{}, time.Time{}
	for next := ""; ; {
		p := list("topic=a&limit=3&cursor=" + next)
		for _, m := range p.Messages {
			if seen[m.ID] || m.DeliverAt.Before(last) {
				t.Errorf("%s, due %s after %s, is listed before: %t", m.ID, m.DeliverAt, last, seen[m.ID])
			}
			seen[m.ID], last = true, *m.DeliverAt
		}
		if next = p.Next; len(p.Messages) > 3 || next == "" {
			break
		}
	}
	if len(seen) != 7 {
		t.Errorf("the pages have %d messages, want 7", len(seen))
	}
	for query, field := range map[string]string{
		"limit=0": "query.limit", "limit=1001": "query.limit", "cursor=x": "query.cursor", "since=2001-01-01T00:00:00Z": "query.since", "until=soon": "query.until",
		"cursor=" + httpapi.Cursor(formatPosition(schedule.Position{DeliverAt: time.UnixMilli(-1 << 50)}), Path): "query.cursor",
		"topic=b&cursor=" + list("topic=a&limit=3").Next:                                                         "query.cursor", "cursor=" + list("topic=a&limit=3").Next: "query.cursor",
	} {
		if r := world.Request(t, b.handler, "GET", "/v1/messages?state=scheduled&"+query, ""); r.Status != 422 || !strings.Contains(r.Text, `"location":"`+field+`"`) {
			t.Errorf("%s = %d %s, want %s", query, r.Status, r.Text, field)
		}
	}
	if r := world.Request(t, newHandler(b.Service), "GET", "/v1/messages?state=scheduled&topic=a", ""); r.Status != 200 || strings.Contains(r.Text, "client") || strings.Contains(r.Text, "shop") {
		t.Errorf("a caller receives the clients of others: %d %s", r.Status, r.Text)
	}
}
