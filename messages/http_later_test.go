package messages

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

func TestHTTP_ScheduledIsSeenListedAndTakenBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ids []gocql.UUID
	for i := range 5 {
		r := world.Request(t, b.handler, "POST", "/v1/messages", fmt.Sprintf(`{"topic":"t","key":"k","delay":"%dm"}`, 50-i))
		if r.Status != 202 || r.Body["state"] != "scheduled" || r.Body["deliver_at"] == nil {
			t.Fatalf("POST = %d %s", r.Status, r.Text)
		}
		ids = append([]gocql.UUID{r.ID(t)}, ids...)
	}
	if n := len(b.events(t)); n != 0 {
		t.Errorf("%d events are in the outbox ahead of time", n)
	}
	var listed []string
	for path := "/v1/messages?limit=2"; path != ""; {
		r := world.Request(t, b.handler, "GET", path, "")
		page, _ := r.Body["messages"].([]any)
		if r.Status != 200 || len(page) > 2 {
			t.Fatalf("GET %s = %d %s", path, r.Status, r.Text)
		}
		for _, m := range page {
			one, _ := m.(map[string]any)
			listed = append(listed, fmt.Sprint(one["id"]))
		}
		path = ""
		if next, ok := r.Body["next"].(string); ok {
			path = "/v1/messages?state=scheduled&limit=2&cursor=" + next
		}
	}
	for i, id := range ids {
		if i >= len(listed) || listed[i] != id.String() {
			t.Fatalf("listed %v, want %v", listed, ids)
		}
	}
	for query, want := range map[string]int{"&key=k": 5, "&key=k&topic=t": 5, "&key=other": 0, "&topic=other": 0} {
		if r := world.Request(t, b.handler, "GET", "/v1/messages?state=scheduled"+query, ""); r.Status != 200 || len(r.Body["messages"].([]any)) != want {
			t.Errorf("GET %s = %d %s, want %d", query, r.Status, r.Text, want)
		}
	}
	path := "/v1/messages/" + ids[0].String()
	if r := world.Request(t, b.handler, "GET", path, ""); r.Status != 200 || r.Body["state"] != "scheduled" || r.Body["key"] != "k" {
		t.Errorf("GET = %d %s", r.Status, r.Text)
	}
	for range 2 {
		if r := world.Request(t, b.handler, "DELETE", path, ""); r.Status != 204 {
			t.Errorf("DELETE = %d %s", r.Status, r.Text)
		}
	}
	if r := world.Request(t, b.handler, "GET", path, ""); r.Status != 200 || r.Body["state"] != "cancelled" {
		t.Errorf("GET after DELETE = %d %s", r.Status, r.Text)
	}
	if n := len(b.waiting(t)); n != 4 {
		t.Errorf("%d wait, want 4", n)
	}
	for _, bad := range []string{"?state=queued", "?state=scheduled&cursor=x", "?state=scheduled&limit=0", "?state=scheduled&since=1900-01-01T00:00:00Z"} {
		if r := world.Request(t, b.handler, "GET", "/v1/messages"+bad, ""); r.Status != 422 {
			t.Errorf("GET %s = %d %s", bad, r.Status, r.Text)
		}
	}
}

func TestHTTP_QueuedCannotBeTakenBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := world.Request(t, b.handler, "POST", "/v1/messages", `{"topic":"t"}`)
	path := "/v1/messages/" + r.ID(t).String()
	if r := world.Request(t, b.handler, "DELETE", path, ""); r.Status != 409 || r.Body["type"] != problemTooLate {
		t.Errorf("DELETE = %d %s", r.Status, r.Text)
	}
	for _, method := range []string{"GET", "DELETE"} {
		if r := world.Request(t, b.handler, method, "/v1/messages/018f0102-0304-7006-8708-090a0b0c0d0e", ""); r.Status != 404 {
			t.Errorf("%s of none = %d %s", method, r.Status, r.Text)
		}
		if r := world.Request(t, b.handler, method, "/v1/messages/nonsense", ""); r.Status != 422 && r.Status != 404 {
			t.Errorf("%s of nonsense = %d %s", method, r.Status, r.Text)
		}
	}
}

// known returns the answers of a test.
type known struct {
	deadLetter *DeadLetter
	place      *Place
	err        error
}

func (k *known) DeadLetter(context.Context, gocql.UUID) (DeadLetter, bool, error) {
	if k.deadLetter == nil {
		return DeadLetter{}, false, nil
	}
	return *k.deadLetter, true, nil
}

func (k *known) Find(context.Context, string, []byte, gocql.UUID, time.Time) (Place, bool, error) {
	if k.place == nil {
		return Place{}, false, k.err
	}
	return *k.place, true, nil
}

func TestHTTP_StateFollowsDeadLetterAndTopic(t *testing.T) {
	t.Parallel()
	k := &known{}
	b := setup(t, func(c *Config) { c.DeadLetters, c.Finder = k, k })
	path := "/v1/messages/" + world.Request(t, b.handler, "POST", "/v1/messages", `{"topic":"t"}`).ID(t).String()
	state := func() string {
		r := world.Request(t, b.handler, "GET", path, "")
		history, _ := r.Body["history"].([]any)
		last, _ := history[len(history)-1].(map[string]any)
		if r.Status != 200 || last["state"] != r.Body["state"] {
			t.Errorf("GET = %d %s, want a history that ends with the state", r.Status, r.Text)
		}
		return fmt.Sprint(r.Body["state"])
	}
	if s := state(); s != "queued" {
		t.Errorf("state %s before it is published, want queued", s)
	}
	for _, s := range []State{DLQPending, DLQProcessing, Retrying, Failed, Resolved, Archived} {
		k.deadLetter = &DeadLetter{State: s, Since: time.Now(), At: time.Now(), Error: "broken"}
		if got := state(); got != string(s) {
			t.Errorf("state %s with a dead letter in state %s", got, s)
		}
	}
	k.deadLetter, k.err = nil, fmt.Errorf("no broker")
	if r := world.Request(t, b.handler, "GET", path, ""); r.Body["state"] != "queued" || r.Body["note"] == nil {
		t.Errorf("GET without a broker = %s, want a note", r.Text)
	}
	k.place = &Place{Topic: "t", Partition: 3, Offset: 7, At: time.Now()}
	if s := state(); s != "completed" {
		t.Errorf("state %s of a published record", s)
	}
	k.place.Subscriptions = []subscriptions.Progress{{Subscription: "mail", State: subscriptions.ProgressCompleted, ProcessedAt: time.UnixMilli(1e12).UTC()}}
	if r := world.Request(t, b.handler, "GET", path, ""); !strings.Contains(r.Text, `"subscriptions":[{"subscription":"mail","state":"completed","processed_at":"2001-09-09T01:46:40Z"}]`) {
		t.Errorf("GET = %s, want the state in the subscription", r.Text)
	}
	k.place.Subscriptions, k.place.Note = nil, "unreadable"
	if r := world.Request(t, b.handler, "GET", path, ""); r.Body["note"] != "unreadable" {
		t.Errorf("GET = %s, want the note", r.Text)
	}
}
