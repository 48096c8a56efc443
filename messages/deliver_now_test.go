package messages

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/schedule"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// later submits a message with a delay, and returns its path.
func (b *fixture) later(t testing.TB, delay string) (path string) {
	t.Helper()
	r := world.Request(t, b.handler, "POST", "/v1/messages", `{"topic":"t","key":"k","payload":{"n":1},"headers":{"a":"b"},"delay":"`+delay+`"}`)
	if r.Status != 202 || r.Body["state"] != "scheduled" {
		t.Fatalf("POST = %d %s", r.Status, r.Text)
	}
	return "/v1/messages/" + r.ID(t).String()
}

// relay runs the scheduler of a relay until the test ends.
func (b *fixture) relay(t testing.TB) {
	t.Helper()
	s, err := schedule.New(schedule.Config{Store: b.schedule, Poll: 10 * time.Millisecond, Sweep: 100 * time.Millisecond, Lease: 30 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// becomes waits for the state of a message.
func (b *fixture) becomes(t testing.TB, path string, want State) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		r := world.Request(t, b.handler, "GET", path, "")
		if r.Body["state"] == string(want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("GET %s = %s, want it %s", path, r.Text, want)
		}
	}
}

// A message that is delivered now is written to the outbox immediately and once, with the
// time of the request, so that no relay delays it.
func TestHTTP_DeliverNowGoesOutImmediately(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.relay(t)
	path, other := b.later(t, "24h"), b.later(t, "24h")
	r := world.Request(t, b.handler, "POST", path+"/deliver-now", "")
	at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(r.Body["deliver_at"]))
	if r.Status != 200 || err != nil || time.Since(at) < 0 || r.ID(t).String() != strings.TrimPrefix(path, "/v1/messages/") {
		t.Fatalf("POST deliver-now = %d %s", r.Status, r.Text)
	}
	b.becomes(t, path, Queued)
	e := b.events(t)[r.ID(t)]
	if !e.DeliverAt.Equal(at) || string(e.Payload) != `{"n":1}` || string(e.Key()) != "k" {
		t.Errorf("event %+v, want it for %s", e, at)
	}
	if again := world.Request(t, b.handler, "POST", path+"/deliver-now", ""); again.Status != 409 || again.Body["type"] != problemNotWaiting || again.Body["state"] != "queued" {
		t.Errorf("POST deliver-now again = %d %s", again.Status, again.Text)
	}
	if r := world.Request(t, b.handler, "GET", other, ""); r.Body["state"] != "scheduled" {
		t.Errorf("GET of the other = %s", r.Text)
	}
	if events, waiting := b.events(t), b.waiting(t); len(events) != 1 || len(waiting) != 1 {
		t.Errorf("%d events, and %d messages wait, want one of each", len(events), len(waiting))
	}
}

// Without a scheduler a message that is made due stays due, is listed first, and can be
// made due again and cancelled; afterwards the request returns the reason of the
// refusal.
func TestHTTP_DeliverNowStaysDueWithoutARelay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	soon, path := b.later(t, "1h"), b.later(t, "24h")
	first := world.Request(t, b.handler, "POST", path+"/deliver-now", "")
	again := world.Request(t, b.handler, "POST", path+"/deliver-now", "")
	if first.Status != 200 || first.Text != again.Text {
		t.Errorf("POST deliver-now = %d %s, again %d %s", first.Status, first.Text, again.Status, again.Text)
	}
	if r := world.Request(t, b.handler, "GET", path, ""); r.Body["state"] != "scheduled" || !strings.Contains(r.Text, "made due by hand") {
		t.Errorf("GET = %s", r.Text)
	}
	if w := b.waiting(t); len(w) != 2 || messagePath(w[0].ID) != path || messagePath(w[1].ID) != soon {
		t.Errorf("%+v are waiting, want the one that is due first", w)
	}
	if r := world.Request(t, b.handler, "DELETE", path, ""); r.Status != 204 {
		t.Errorf("DELETE = %d %s", r.Status, r.Text)
	}
	if r := world.Request(t, b.handler, "POST", path+"/deliver-now", ""); r.Status != 409 || r.Body["state"] != "cancelled" || !strings.Contains(r.Text, "cancelled") {
		t.Errorf("POST deliver-now of a cancelled one = %d %s", r.Status, r.Text)
	}
	if r := world.Request(t, b.handler, "POST", "/v1/messages/018f0102-0304-7006-8708-090a0b0c0d0e/deliver-now", ""); r.Status != 404 || r.Body["type"] != problemNotFound {
		t.Errorf("POST deliver-now of an unknown id = %d %s", r.Status, r.Text)
	}
}

// A published message or dead letter is not made due, and the problem contains
// the state.
func TestHTTP_NotWaitingHasItsReason(t *testing.T) {
	t.Parallel()
	k := &known{}
	b := setup(t, func(c *Config) { c.DeadLetters, c.Finder = k, k })
	path := "/v1/messages/" + world.Request(t, b.handler, "POST", "/v1/messages", `{"topic":"t"}`).ID(t).String()
	for state, want := range map[State]string{Queued: "already released or published", DLQPending: "Replay the dead letter", Retrying: "Replay the dead letter", Failed: "Replay the dead letter", Resolved: "is resolved", Archived: "is resolved"} {
		if k.deadLetter = nil; state != Queued {
			k.deadLetter = &DeadLetter{State: state, Since: time.Now(), At: time.Now(), Error: "broken"}
		}
		r := world.Request(t, b.handler, "POST", path+"/deliver-now", "")
		if r.Status != 409 || r.Body["state"] != string(state) || !strings.Contains(r.Text, want) {
			t.Errorf("POST deliver-now in state %s = %d %s, want %q", state, r.Status, r.Text, want)
		}
	}
	if n := len(b.events(t)); n != 1 {
		t.Errorf("%d events, want one", n)
	}
}

// repeatAdmitted repeats a request until the service is not overloaded, as a slow machine is by
// many requests at once, for five minutes at most.
func repeatAdmitted(t *testing.T, h http.Handler, method, path string) world.Response {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		r := world.Request(t, h, method, path, "")
		if r.Status != http.StatusServiceUnavailable || time.Now().After(end) {
			return r
		}
	}
}

// Messages are made due by requests and by the scheduler at the same time, and
// cancelled: each is published once or cancelled, as the responses report.
func TestHTTP_DeliverNowRace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.relay(t)
	const n = 60
	var taken sync.Map
	var all sync.WaitGroup
	paths := make([]string, n)
	for i := range n {
		paths[i] = b.later(t, "300ms")
		for range 2 {
			all.Go(func() {
				time.Sleep(time.Duration(300+i%7-3) * time.Millisecond)
				if r := repeatAdmitted(t, b.handler, "POST", paths[i]+"/deliver-now"); r.Status != 200 && r.Status != 409 {
					t.Errorf("POST deliver-now = %d %s", r.Status, r.Text)
				}
			})
		}
		if i%3 == 0 {
			all.Go(func() {
				time.Sleep(time.Duration(300+i%7-3) * time.Millisecond)
				if r := repeatAdmitted(t, b.handler, "DELETE", paths[i]); r.Status == 204 {
					taken.Store(paths[i], true)
				} else if r.Status != 409 {
					t.Errorf("DELETE = %d %s", r.Status, r.Text)
				}
			})
		}
	}
	all.Wait()
	for _, path := range paths {
		want := Queued
		if _, ok := taken.Load(path); ok {
			want = Cancelled
		}
		b.becomes(t, path, want)
	}
	out := 0
	// A write that takes longer than 100 ms may be repeated with another write time, which the
	// relay publishes once: the CDC log is no measure here, and the outbox has one row for each.
	for _, e := range b.Outbox(t) {
		id := e.ID.UUID()
		out++
		if _, ok := taken.Load(messagePath(id)); ok {
			t.Errorf("message %s was cancelled, and is in the outbox", id)
		}
	}
	back := 0
	taken.Range(func(any, any) bool { back++; return true })
	if out+back != n {
		t.Errorf("%d are published and %d cancelled, want %d in all", out, back, n)
	}
}

// The outcome of a request with a lost response is determined, or reported as
// unknown.
func TestHTTP_DeliverNowAnswersAreTrue(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("many variants")
	}
	timeout := faults.WriteTimeout(faults.CAS, 1, 2)
	for name, tt := range map[string]struct {
		count  int
		effect faults.Effect
		status int
	}{
		"not decided":       {1, faults.Effect{Failure: timeout}, 200},
		"decided, unseen":   {1, faults.Effect{Failure: timeout, Fate: engine.FateDecided}, 200},
		"carried out":       {1, faults.Effect{Failure: timeout, Fate: engine.FateApply}, 200},
		"cannot be decided": {0, faults.Effect{Failure: faults.Unavailable(0, 1)}, 503},
		"never answers":     {0, faults.Effect{Failure: timeout}, 503},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			path := b.later(t, "24h")
			if tt.count == 0 {
				b.brief()
			}
			hits := b.Fault(tt.count, tt.effect, engine.OpCAS)
			r := world.Request(t, b.handler, "POST", path+"/deliver-now", "")
			if r.Status != tt.status || hits() == 0 {
				t.Errorf("POST deliver-now = %d %s after %d faults, want %d", r.Status, r.Text, hits(), tt.status)
			}
			if r.Status == 503 && (r.Header.Get("Retry-After") == "" || r.Body["outcome_unknown"] != true || !strings.Contains(r.Text, "retry")) {
				t.Errorf("POST deliver-now = %v %s", r.Header, r.Text)
			}
			b.Node.Faults().Clear()
			b.relay(t)
			for end := time.Now().Add(5 * time.Minute); r.Status != 200 && r.Status != 409 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				r = world.Request(t, b.handler, "POST", path+"/deliver-now", "")
			}
			b.becomes(t, path, Queued)
			if n := len(b.events(t)); n != 1 {
				t.Errorf("%d events, want one", n)
			}
		})
	}
}

// The response of the database is lost, and the relay publishes the message
// before a retry: the request reports success.
func TestHTTP_DeliveredBeforeItWasKnown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.relay(t)
	b.becomes(t, b.later(t, "1ms"), Queued) // the relay works
	path := b.later(t, "24h")
	b.Node.Faults().MustAdd(faults.Rule{
		Match: faults.Match{Kinds: []engine.OpKind{engine.OpCAS}, Func: func(o engine.Op) bool { return o.Table == "schedule_slots" }}, Count: 1,
		Effect: faults.Effect{Failure: faults.WriteTimeout(faults.CAS, 1, 2), Fate: engine.FateApply},
	})
	b.Node.Faults().MustAdd(faults.Rule{
		Match: faults.Match{Kinds: []engine.OpKind{engine.OpSerialRead}}, Count: 1,
		Effect: faults.Effect{Failure: faults.Unavailable(0, 1), Delay: time.Second}, // it is published concurrently
	})
	if r := world.Request(t, b.handler, "POST", path+"/deliver-now", ""); r.Status != 200 {
		t.Errorf("POST deliver-now = %d %s", r.Status, r.Text)
	}
	b.becomes(t, path, Queued)
	if n := len(b.events(t)); n != 2 {
		t.Errorf("%d events, want two", n)
	}
}

// The content of a message is shown unchanged in every state.
func TestHTTP_ContentIsShown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	waits := b.later(t, "24h")
	r := world.Request(t, b.handler, "GET", waits+"/content", "")
	headers, _ := r.Body["headers"].(map[string]any)
	if r.Status != 200 || r.Body["payload_text"] != `{"n":1}` || r.Body["content_type"] != "application/json" || headers["a"] != "b" || len(headers) != 1 && headers["x-request-id"] == nil {
		t.Errorf("GET content = %d %s", r.Status, r.Text)
	}
	for body, want := range map[string]string{
		`{"topic":"t","key":"k","payload_base64":"/wD+"}`: "\xff\x00\xfe",
		`{"topic":"t"}`: "",
		`{"topic":"t","payload_text":"<script>alert(1)</script>"}`: "<script>alert(1)</script>",
	} {
		path := "/v1/messages/" + world.Request(t, b.handler, "POST", "/v1/messages", body).ID(t).String()
		r := world.Request(t, b.handler, "GET", path+"/content", "")
		got, ok := r.Body["payload_text"].(string)
		if !ok {
			raw, err := base64.StdEncoding.DecodeString(fmt.Sprint(r.Body["payload_base64"]))
			if got = string(raw); err != nil {
				t.Error(err)
			}
		}
		if r.Status != 200 || got != want || r.Body["payload_bytes"] != float64(len(want)) || strings.Contains(r.Text, "partitionkey") {
			t.Errorf("GET content of %s = %d %s", body, r.Status, r.Text)
		}
	}
	world.Request(t, b.handler, "DELETE", waits, "")
	for _, path := range []string{waits, "/v1/messages/018f0102-0304-7006-8708-090a0b0c0d0e"} {
		if r := world.Request(t, b.handler, "GET", path+"/content", ""); r.Status != http.StatusNotFound {
			t.Errorf("GET content of %s = %d %s", path, r.Status, r.Text)
		}
	}
	if _, err := b.Content(t.Context(), gocql.UUID{}); !errors.Is(err, ErrNotFound) {
		t.Errorf("Content() of an unknown id = %v", err)
	}
}
