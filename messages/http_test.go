package messages

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/schedule"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

func TestHTTP_StoresWhatItTakes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, tt := range []struct {
		body                      string
		key, payload, contentType string
		headers                   map[string]string
	}{
		{`{"topic":"t","payload":{"a": 1}}`, "", `{"a": 1}`, "application/json", nil},
		{`{"topic":"t","payload":null}`, "", `null`, "application/json", nil},
		{`{"topic":"t"}`, "", ``, "application/json", nil},
		{`{"topic":"t","key":"k","payload_text":"héllo","headers":{"x":"y"},"priority":7,"max_receive":5}`, "k", "héllo", "text/plain; charset=utf-8", map[string]string{"x": "y", "outbox-priority": "7", "outbox-max-receive": "5"}},
		{`{"topic":"t","payload_base64":"AAEC","content_type":"image/png"}`, "", "\x00\x01\x02", "image/png", nil},
		{`{"topic":"t","payload":1,"deliver_at":"2020-01-01T00:00:00Z"}`, "", "1", "application/json", nil},
	} {
		r := world.Request(t, b.handler, "POST", "/v1/messages", tt.body, "traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", access.RequestIDHeader, "req-1")
		if r.Status != 202 || r.Body["state"] != "queued" || r.Header.Get("Location") != "/v1/messages/"+fmt.Sprint(r.Body["id"]) {
			t.Fatalf("POST %s = %d %s", tt.body, r.Status, r.Text)
		}
		e, ok := b.events(t)[r.ID(t)]
		if !ok {
			t.Fatalf("POST %s: no event", tt.body)
		}
		key := tt.key
		if key == "" {
			key = e.AggregateID.String()
		}
		if e.Type != "t" || e.AggregateType != "message" || string(e.Key()) != key || string(e.Payload) != tt.payload || e.ContentType != tt.contentType ||
			!strings.HasPrefix(e.Headers["traceparent"], "00-4bf9") || e.Headers["x-request-id"] != "req-1" || !e.DeliverAt.IsZero() {
			t.Errorf("POST %s: event %+v", tt.body, e)
		}
		for k, v := range tt.headers {
			if e.Headers[k] != v {
				t.Errorf("POST %s: headers %v", tt.body, e.Headers)
			}
		}
	}
}

func TestHTTP_NamesEveryBadField(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.Topics, c.MaxMessageBytes = []string{"t", "billing.*"}, 100 })
	for _, tt := range []struct {
		body   string
		status int
		want   []string
	}{
		{``, 400, nil},
		{`{"topic":`, 400, []string{"body.topic"}},
		{`{"topic":"t"} x`, 400, []string{"body"}},
		{`[]`, 422, []string{"body"}},
		{`null`, 422, []string{"body"}},
		{`{}`, 422, []string{"body.topic"}},
		{
			`{"topic":1,"key":2,"payload_text":{},"headers":[],"priority":"x","max_receive":1.5,"what":1}`, 422,
			[]string{"body.headers", "body.key", "body.max_receive", "body.payload_text", "body.priority", "body.topic", "body.what"},
		},
		{`{"topic":"other"}`, 422, []string{"body.topic"}},
		{`{"topic":"_schemas"}`, 422, []string{"body.topic"}},
		{`{"topic":"billing.a/b"}`, 422, []string{"body.topic"}},
		{
			`{"topic":"t","payload":1,"payload_text":"x","delay":"1h","deliver_at":"2999-01-01T00:00:00Z","priority":10,"max_receive":1001}`, 422,
			[]string{"body.delay", "body.max_receive", "body.payload", "body.priority"},
		},
		{`{"topic":"t","key":"k","payload":null,"tombstone":true}`, 422, []string{"body.payload"}},
		{`{"topic":"t","tombstone":true}`, 422, []string{"body.key"}},
		{`{"topic":"t","key":"","tombstone":true}`, 422, []string{"body.key"}},
		{`{"topic":"t","tombstone":"yes"}`, 422, []string{"body.tombstone"}},
		{`{"topic":"t","delay":"soon"}`, 422, []string{"body.delay"}},
		{`{"topic":"t","delay":"-5s"}`, 422, []string{"body.delay"}},
		{`{"topic":"t","delay":"9999h"}`, 422, []string{"body.delay"}},
		{`{"topic":"t","deliver_at":"2999-01-01T00:00:00Z"}`, 422, []string{"body.deliver_at"}},
		{`{"topic":"t","payload_text":"` + strings.Repeat("x", 101) + `"}`, 422, []string{"body.payload"}},
		{`{"topic":"t","key":"a\u0000b","headers":{"ce_id":"x"},"content_type":"\u0001"}`, 422, []string{"body.content_type", "body.headers.ce_id", "body.key"}},
		{`{"topic":"t","headers":{"outbox-priority":"1"},"priority":1}`, 422, []string{"body.headers.outbox-priority"}},
		{`{"topic":"t","headers":{"outbox-max-receive":"1"},"max_receive":1}`, 422, []string{"body.headers.outbox-max-receive"}},
		{`{"topic":"t","max_receive":0}`, 422, []string{"body.max_receive"}},
		{`{"topic":"t","key":"a","headers":{"ce_partitionkey":"b"}}`, 422, []string{"body.headers.ce_partitionkey"}},
		{`{"topic":"t","headers":{"a":null,"b":"","c":null}}`, 422, []string{"body.headers.a", "body.headers.c"}},
		{`{"topic":"t","headers":{"":"1"}}`, 422, []string{"body.headers."}},
	} {
		r := world.Request(t, b.handler, "POST", "/v1/messages", tt.body)
		if r.Status != tt.status || !slices.Equal(locations(r), tt.want) || r.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("POST %s = %d %s, want %d with %v", tt.body, r.Status, r.Text, tt.status, tt.want)
		}
	}
	if r := world.Request(t, b.handler, "POST", "/v1/messages", `{"topic":"billing.events"}`); r.Status != 202 {
		t.Errorf("POST to an allowed topic = %d %s", r.Status, r.Text)
	}
	if n := len(b.events(t)); n != 1 {
		t.Errorf("%d events are stored, want the allowed one", n)
	}
	if r := world.Request(t, b.handler, "POST", "/v1/messages", `{"topic":"t","payload":"`+strings.Repeat("x", 10_000)+`"}`); r.Status != 413 {
		t.Errorf("POST of an oversized body = %d %s", r.Status, r.Text)
	}
}

// The problem of an unusual but plausible request contains the correct form.
func TestHTTP_ProblemsContainTheFix(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for body, want := range map[string]string{
		`{"topic":"t","deliver_at":"2026-12-31T23:59:60Z"}`:              "without a leap second",
		`{"topic":"t","deliver_at":"2027-01-31T08:00:00"}`:               "with an offset",
		`{"topic":"t","deliver_at":1800000000}`:                          "2027-01-31T08:00:00Z",
		`{"topic":"t","delay":"1d"}`:                                     "h as the largest unit",
		`{"topic":"t","delay":"99999999h"}`:                              "at most 366 days",
		`{"topic":"__consumer_offsets"}`:                                 "begins with _",
		`{"topic":"t","key":"` + strings.Repeat("k", 250) + `"}`:         "the message's id",
		`{"topic":"t","key":"a","headers":{"ce_partitionkey":"b"}}`:      "use key",
		`{"topic":"t","delay":"1h","deliver_at":"2027-01-31T08:00:00Z"}`: "mutually exclusive",
	} {
		r := world.Request(t, b.handler, "POST", "/v1/messages", body)
		if r.Status != 422 || !strings.Contains(r.Text, want) {
			t.Errorf("POST %.80s = %d %s, want a problem with %q", body, r.Status, r.Text, want)
		}
	}
	if n := len(b.events(t)); n != 0 {
		t.Errorf("%d events are stored", n)
	}
}

// Times of other zones are accepted, and fractions of a millisecond are rounded
// up.
func TestHTTP_TakesTimesOfAnyZone(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Second)
	b := setup(t, func(c *Config) { c.Clock = world.Clock(func() time.Time { return now }) })
	kathmandu, west := time.FixedZone("", 5*3600+45*60), time.FixedZone("", -12*3600)
	hour, most := now.Add(time.Hour), now.Add(schedule.MaxAhead)
	in := func(at time.Time, zone *time.Location) string { return at.In(zone).Format(time.RFC3339Nano) }
	for at, want := range map[string]string{
		in(hour, kathmandu):                  in(hour, time.UTC),
		in(hour, west):                       in(hour, time.UTC),
		in(hour.Add(123_000_001), time.UTC):  in(hour.Add(124*time.Millisecond), time.UTC),
		in(most, west):                       in(most, time.UTC),
		in(most.Add(1), time.UTC):            "",
		in(most.Add(time.Second), kathmandu): "",
		in(now.Add(-1), kathmandu):           "now",
		"0000-01-01T00:00:00Z":               "now",
	} {
		r := world.Request(t, b.handler, "POST", "/v1/messages", `{"topic":"t","deliver_at":"`+at+`"}`)
		switch {
		case want == "" && r.Status != 422, want != "" && r.Status != 202:
			t.Errorf("POST for %s = %d %s", at, r.Status, r.Text)
		case want == "now" && r.Body["state"] != "queued", want != "" && want != "now" && r.Body["deliver_at"] != want:
			t.Errorf("POST for %s = %s, want it for %q", at, r.Text, want)
		}
	}
}

// An invalid key is rejected: its caller assumes that a retry is safe.
func TestHTTP_RefusesAnInvalidKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, path := range []string{"/v1/messages", "/v1/messages/batch"} {
		body := `{"topic":"t"}`
		if path != "/v1/messages" {
			body = `{"messages":[` + body + `]}`
		}
		for _, keys := range [][]string{{""}, {"a", "b"}, {"a", "a"}, {"ключ"}, {strings.Repeat("k", maxKey+1)}} {
			r := httptest.NewRequestWithContext(t.Context(), "POST", path, strings.NewReader(body))
			r.Host = "localhost"
			r.Header["Idempotency-Key"] = keys
			w := httptest.NewRecorder()
			b.handler.ServeHTTP(w, r)
			if w.Code != 422 || !strings.Contains(w.Body.String(), "header.Idempotency-Key") {
				t.Errorf("POST %s with the keys %q = %d %s", path, keys, w.Code, w.Body)
			}
		}
	}
	if n := len(b.events(t)); n != 0 {
		t.Errorf("%d events are stored", n)
	}
}

func TestHTTP_BatchHasAResultForEach(t *testing.T) {
	t.Parallel()
	b := setup(t)
	body := `{"messages":[{"topic":"a","payload":1},{"topic":""},{"topic":"b","delay":"1h"},{"nonsense":true},5]}`
	r := world.Request(t, b.handler, "POST", "/v1/messages/batch", body, "Idempotency-Key", "k")
	if r.Status != 207 || r.Body["accepted"] != 2.0 || r.Body["rejected"] != 3.0 {
		t.Fatalf("POST = %d %s", r.Status, r.Text)
	}
	results, _ := r.Body["results"].([]any)
	for i, want := range []float64{202, 422, 202, 422, 422} {
		one, _ := results[i].(map[string]any)
		if one["index"] != float64(i) || one["status"] != want || (one["message"] != nil) != (want == 202) || (one["problem"] != nil) != (want == 422) {
			t.Errorf("result %d = %v, want status %g", i, one, want)
		}
	}
	again := world.Request(t, b.handler, "POST", "/v1/messages/batch", body, "Idempotency-Key", "k")
	if again.Status != 207 || again.Text != r.Text {
		t.Errorf("the same batch again = %d %s, want %s", again.Status, again.Text, r.Text)
	}
	if len(b.events(t)) != 1 || len(b.waiting(t)) != 1 {
		t.Errorf("%d events and %d waiting messages, want one of each", len(b.events(t)), len(b.waiting(t)))
	}
	for _, bad := range []string{`{"messages":[]}`, `{"messages":[` + strings.Repeat(`{"topic":"t"},`, MaxBatch) + `{"topic":"t"}]}`, `[]`, `{"messages":[],"x":1}`} {
		if r := world.Request(t, b.handler, "POST", "/v1/messages/batch", bad); r.Status != 422 {
			t.Errorf("POST %.40s… = %d %.200s", bad, r.Status, r.Text)
		}
	}
	full := `{"messages":[` + strings.TrimSuffix(strings.Repeat(`{"topic":"t"},`, MaxBatch), ",") + `]}`
	if r := world.Request(t, b.handler, "POST", "/v1/messages/batch", full); r.Status != 202 || r.Body["accepted"] != float64(MaxBatch) {
		t.Errorf("POST of a full batch = %d %.200s", r.Status, r.Text)
	}
}

func TestHTTP_SameKeyIsOneMessage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	post := func(body, address string) world.Response {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/messages", strings.NewReader(body))
		r.Host = "localhost"
		r.Header.Set("Idempotency-Key", "k")
		r.RemoteAddr = address
		w := httptest.NewRecorder()
		b.handler.ServeHTTP(w, r)
		out := world.Response{Status: w.Code, Header: w.Result().Header, Text: w.Body.String()}
		if err := json.Unmarshal(w.Body.Bytes(), &out.Body); err != nil {
			t.Fatal(err)
		}
		return out
	}
	first := post(`{"topic":"t","delay":"1h"}`, "192.0.2.1:1")
	again := post(`{"delay":"1h", "topic":"t"}`, "192.0.2.1:2")
	if first.Status != 202 || again.Status != 202 || first.ID(t) != again.ID(t) || again.Header.Get("Idempotency-Replayed") != "true" ||
		first.Body["deliver_at"] != again.Body["deliver_at"] {
		t.Errorf("first %s, again %v %s", first.Text, again.Header, again.Text)
	}
	if r := post(`{"topic":"other"}`, "192.0.2.1:1"); r.Status != 422 || r.Body["type"] != problemKeyReuse {
		t.Errorf("another message with the key = %d %s", r.Status, r.Text)
	}
	// Without tokens a retry may come from another address.
	if moved := post(`{"topic":"t","delay":"1h"}`, "192.0.2.2:1"); moved.Status != 202 || moved.ID(t) != first.ID(t) || moved.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("the same key from another address = %d %s", moved.Status, moved.Text)
	}
	// A cancelled message stays cancelled.
	if r := world.Request(t, b.handler, "DELETE", "/v1/messages/"+first.ID(t).String(), ""); r.Status != 204 {
		t.Fatalf("DELETE = %d %s", r.Status, r.Text)
	}
	if r := post(`{"topic":"t","delay":"1h"}`, "192.0.2.1:1"); r.Status != 202 || r.Text != first.Text || r.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("POST again after DELETE = %d %s, want the first response, %s", r.Status, r.Text, first.Text)
	}
	if r := world.Request(t, b.handler, "GET", "/v1/messages/"+first.ID(t).String(), ""); r.Body["state"] != "cancelled" {
		t.Errorf("GET = %d %s, want it cancelled", r.Status, r.Text)
	}
	if n := len(b.waiting(t)); n != 0 {
		t.Errorf("%d messages are waiting, want none", n)
	}
}

// A producer sends to its topics only, in a batch too.
func TestHTTP_TopicsOfAProducer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	post := func(path, body string) int {
		ctx := access.With(t.Context(), access.Principal{Name: "app", Role: access.Producer, Names: "t|billing.*"})
		r := httptest.NewRequestWithContext(ctx, "POST", path, strings.NewReader(body))
		r.Host = "localhost"
		w := httptest.NewRecorder()
		b.handler.ServeHTTP(w, r)
		return w.Code
	}
	for body, want := range map[string]int{`{"topic":"t"}`: 202, `{"topic":"billing.events"}`: 202, `{"topic":"other"}`: 403, `{}`: 422} {
		if got := post("/v1/messages", body); got != want {
			t.Errorf("POST of %s = %d, want %d", body, got, want)
		}
	}
	stored := len(b.events(t))
	if got := post("/v1/messages/batch", `{"messages":[{"topic":"t"},{"topic":"other"}]}`); got != 403 || len(b.events(t)) != stored {
		t.Errorf("POST of a batch with another topic = %d", got)
	}
}
