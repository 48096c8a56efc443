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
)

// later hands a message in for a time, and returns its path.
func (b *bundle) later(t testing.TB, delay string) (path string) {
	t.Helper()
	r := request(t, b.handler, "POST", "/v1/messages", `{"topic":"t","key":"k","payload":{"n":1},"headers":{"a":"b"},"delay":"`+delay+`"}`)
	if r.status != 202 || r.body["state"] != "scheduled" {
		t.Fatalf("POST = %d %s", r.status, r.text)
	}
	return "/v1/messages/" + r.id(t).String()
}

// relay runs the scheduler of a relay until the test ends.
func (b *bundle) relay(t testing.TB) {
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
func (b *bundle) becomes(t testing.TB, path string, want State) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		r := request(t, b.handler, "GET", path, "")
		if r.body["state"] == string(want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("GET %s = %s, want it %s", path, r.text, want)
		}
	}
}

// A released message is written to the outbox immediately and once, with the
// time of its release, so that no relay delays it.
func TestHTTP_ReleasedGoesOutAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.relay(t)
	path, other := b.later(t, "24h"), b.later(t, "24h")
	r := request(t, b.handler, "POST", path+"/release", "")
	at, err := time.Parse(time.RFC3339Nano, fmt.Sprint(r.body["deliver_at"]))
	if r.status != 200 || err != nil || time.Since(at) < 0 || r.id(t).String() != strings.TrimPrefix(path, "/v1/messages/") {
		t.Fatalf("POST release = %d %s", r.status, r.text)
	}
	b.becomes(t, path, Queued)
	e := b.events(t)[r.id(t)]
	if !e.DeliverAt.Equal(at) || string(e.Payload) != `{"n":1}` || string(e.Key()) != "k" {
		t.Errorf("event %+v, want it for %s", e, at)
	}
	if again := request(t, b.handler, "POST", path+"/release", ""); again.status != 409 || again.body["type"] != problemNotWaiting || again.body["state"] != "queued" {
		t.Errorf("POST release again = %d %s", again.status, again.text)
	}
	if r := request(t, b.handler, "GET", other, ""); r.body["state"] != "scheduled" {
		t.Errorf("GET of the other = %s", r.text)
	}
	if events, waiting := b.events(t), b.waiting(t); len(events) != 1 || len(waiting) != 1 {
		t.Errorf("%d events, and %d messages wait, want one of each", len(events), len(waiting))
	}
}

// Without a scheduler a released message stays due, is listed first, and can be
// released again and cancelled; afterwards a release returns the reason of the
// refusal.
func TestHTTP_ReleasedStaysDueWithoutARelay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	soon, path := b.later(t, "1h"), b.later(t, "24h")
	first := request(t, b.handler, "POST", path+"/release", "")
	again := request(t, b.handler, "POST", path+"/release", "")
	if first.status != 200 || first.text != again.text {
		t.Errorf("POST release = %d %s, again %d %s", first.status, first.text, again.status, again.text)
	}
	if r := request(t, b.handler, "GET", path, ""); r.body["state"] != "scheduled" || !strings.Contains(r.text, "released by hand") {
		t.Errorf("GET = %s", r.text)
	}
	if w := b.waiting(t); len(w) != 2 || pathOf(w[0].ID) != path || pathOf(w[1].ID) != soon {
		t.Errorf("%+v are waiting, want the released one first", w)
	}
	if r := request(t, b.handler, "DELETE", path, ""); r.status != 204 {
		t.Errorf("DELETE = %d %s", r.status, r.text)
	}
	if r := request(t, b.handler, "POST", path+"/release", ""); r.status != 409 || r.body["state"] != "cancelled" || !strings.Contains(r.text, "cancelled") {
		t.Errorf("POST release of a cancelled one = %d %s", r.status, r.text)
	}
	if r := request(t, b.handler, "POST", "/v1/messages/018f0102-0304-7006-8708-090a0b0c0d0e/release", ""); r.status != 404 || r.body["type"] != problemNotFound {
		t.Errorf("POST release of an unknown id = %d %s", r.status, r.text)
	}
}

// A published message or dead letter is not released, and the problem contains
// the state.
func TestHTTP_NotWaitingHasItsReason(t *testing.T) {
	t.Parallel()
	k := &known{}
	b := setup(t, func(c *Config) { c.DeadLetters, c.Finder = k, k })
	path := "/v1/messages/" + request(t, b.handler, "POST", "/v1/messages", `{"topic":"t"}`).id(t).String()
	for state, want := range map[State]string{Queued: "already released or published", DLQPending: "Replay the dead letter", Retrying: "Replay the dead letter", Failed: "Replay the dead letter", Resolved: "is resolved", Archived: "is resolved"} {
		if k.letter = nil; state != Queued {
			k.letter = &DeadLetter{State: state, Since: time.Now(), At: time.Now(), Error: "broken"}
		}
		r := request(t, b.handler, "POST", path+"/release", "")
		if r.status != 409 || r.body["state"] != string(state) || !strings.Contains(r.text, want) {
			t.Errorf("POST release in state %s = %d %s, want %q", state, r.status, r.text, want)
		}
	}
	if n := len(b.events(t)); n != 1 {
		t.Errorf("%d events, want one", n)
	}
}

// Messages are released by requests and by the scheduler at the same time, and
// cancelled: each is published once or cancelled, as the responses report.
func TestHTTP_ReleasesRace(t *testing.T) {
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
				if r := request(t, b.handler, "POST", paths[i]+"/release", ""); r.status != 200 && r.status != 409 {
					t.Errorf("POST release = %d %s", r.status, r.text)
				}
			})
		}
		if i%3 == 0 {
			all.Go(func() {
				time.Sleep(time.Duration(300+i%7-3) * time.Millisecond)
				if r := request(t, b.handler, "DELETE", paths[i], ""); r.status == 204 {
					taken.Store(paths[i], true)
				} else if r.status != 409 {
					t.Errorf("DELETE = %d %s", r.status, r.text)
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
	for id := range b.events(t) { // which fails if one is in the log at two times
		out++
		if _, ok := taken.Load(pathOf(id)); ok {
			t.Errorf("message %s was cancelled, and is in the outbox", id)
		}
	}
	back := 0
	taken.Range(func(any, any) bool { back++; return true })
	if out+back != n {
		t.Errorf("%d are published and %d cancelled, want %d in all", out, back, n)
	}
}

// The outcome of a release with a lost response is determined, or reported as
// unknown.
func TestHTTP_ReleaseAnswersAreTrue(t *testing.T) {
	t.Parallel()
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
			hits := b.fault(tt.count, tt.effect, engine.OpCAS)
			r := request(t, b.handler, "POST", path+"/release", "")
			if r.status != tt.status || hits() == 0 {
				t.Errorf("POST release = %d %s after %d faults, want %d", r.status, r.text, hits(), tt.status)
			}
			if r.status == 503 && (r.header.Get("Retry-After") == "" || r.body["outcome_unknown"] != true || !strings.Contains(r.text, "retry")) {
				t.Errorf("POST release = %v %s", r.header, r.text)
			}
			b.node.Faults().Clear()
			b.relay(t)
			for end := time.Now().Add(5 * time.Minute); r.status != 200 && r.status != 409 && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				r = request(t, b.handler, "POST", path+"/release", "")
			}
			b.becomes(t, path, Queued)
			if n := len(b.events(t)); n != 1 {
				t.Errorf("%d events, want one", n)
			}
		})
	}
}

// The response of the database is lost, and the relay publishes the message
// before a retry: the release reports success.
func TestHTTP_ReleasedBeforeItWasKnown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.relay(t)
	b.becomes(t, b.later(t, "1ms"), Queued) // the relay works
	path := b.later(t, "24h")
	b.node.Faults().MustAdd(faults.Rule{
		Match: faults.Match{Kinds: []engine.OpKind{engine.OpCAS}, Func: func(o engine.Op) bool { return o.Table == "scheduled_messages" }}, Count: 1,
		Effect: faults.Effect{Failure: faults.WriteTimeout(faults.CAS, 1, 2), Fate: engine.FateApply},
	})
	b.node.Faults().MustAdd(faults.Rule{
		Match: faults.Match{Kinds: []engine.OpKind{engine.OpSerialRead}}, Count: 1,
		Effect: faults.Effect{Failure: faults.Unavailable(0, 1), Delay: time.Second}, // it is published concurrently
	})
	if r := request(t, b.handler, "POST", path+"/release", ""); r.status != 200 {
		t.Errorf("POST release = %d %s", r.status, r.text)
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
	r := request(t, b.handler, "GET", waits+"/content", "")
	headers, _ := r.body["headers"].(map[string]any)
	if r.status != 200 || r.body["payload_text"] != `{"n":1}` || r.body["content_type"] != "application/json" || headers["a"] != "b" || len(headers) != 1 && headers["x-request-id"] == nil {
		t.Errorf("GET content = %d %s", r.status, r.text)
	}
	for body, want := range map[string]string{
		`{"topic":"t","key":"k","payload_base64":"/wD+"}`: "\xff\x00\xfe",
		`{"topic":"t"}`: "",
		`{"topic":"t","payload_text":"<script>alert(1)</script>"}`: "<script>alert(1)</script>",
	} {
		path := "/v1/messages/" + request(t, b.handler, "POST", "/v1/messages", body).id(t).String()
		r := request(t, b.handler, "GET", path+"/content", "")
		got, ok := r.body["payload_text"].(string)
		if !ok {
			raw, err := base64.StdEncoding.DecodeString(fmt.Sprint(r.body["payload_base64"]))
			if got = string(raw); err != nil {
				t.Error(err)
			}
		}
		if r.status != 200 || got != want || r.body["payload_bytes"] != float64(len(want)) || strings.Contains(r.text, "partitionkey") {
			t.Errorf("GET content of %s = %d %s", body, r.status, r.text)
		}
	}
	request(t, b.handler, "DELETE", waits, "")
	for _, path := range []string{waits, "/v1/messages/018f0102-0304-7006-8708-090a0b0c0d0e"} {
		if r := request(t, b.handler, "GET", path+"/content", ""); r.status != http.StatusNotFound {
			t.Errorf("GET content of %s = %d %s", path, r.status, r.text)
		}
	}
	if _, err := b.Content(t.Context(), gocql.UUID{}); !errors.Is(err, ErrNotFound) {
		t.Errorf("Content() of an unknown id = %v", err)
	}
}
