package messages

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/internal/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/schedule"
)

// reply is a response as a test looks at it.
type reply struct {
	status int
	header http.Header
	body   map[string]any
	text   string
}

func request(t testing.TB, h http.Handler, method, path, body string, header ...string) reply {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	out := reply{status: w.Code, header: w.Result().Header, text: w.Body.String()}
	if strings.Contains(out.header.Get("Content-Type"), "json") {
		if err := json.Unmarshal(w.Body.Bytes(), &out.body); err != nil {
			t.Fatalf("%s %s: body %q: %v", method, path, out.text, err)
		}
	}
	return out
}

func (r reply) id(t testing.TB) gocql.UUID {
	t.Helper()
	id, err := gocql.ParseUUID(fmt.Sprint(r.body["id"]))
	if err != nil {
		t.Fatalf("reply %d %s has no id", r.status, r.text)
	}
	return id
}

// locations are what a problem's errors name.
func (r reply) locations() []string {
	var out []string
	list, _ := r.body["errors"].([]any)
	for _, e := range list {
		m, _ := e.(map[string]any)
		out = append(out, fmt.Sprint(m["location"]))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

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
		{`{"topic":"t","key":"k","payload_text":"héllo","headers":{"x":"y"},"priority":7}`, "k", "héllo", "text/plain; charset=utf-8", map[string]string{"x": "y", "priority": "7"}},
		{`{"topic":"t","payload_base64":"AAEC","content_type":"image/png"}`, "", "\x00\x01\x02", "image/png", nil},
		{`{"topic":"t","payload":1,"deliver_at":"2020-01-01T00:00:00Z"}`, "", "1", "application/json", nil},
	} {
		r := request(t, b.handler, "POST", "/v1/messages", tt.body, "traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", access.RequestIDHeader, "req-1")
		if r.status != 202 || r.body["state"] != "queued" || r.header.Get("Location") != "/v1/messages/"+fmt.Sprint(r.body["id"]) {
			t.Fatalf("POST %s = %d %s", tt.body, r.status, r.text)
		}
		e, ok := b.events(t)[r.id(t)]
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
			`{"topic":1,"key":2,"payload_text":{},"headers":[],"priority":"x","what":1}`, 422,
			[]string{"body.headers", "body.key", "body.payload_text", "body.priority", "body.topic", "body.what"},
		},
		{`{"topic":"other"}`, 422, []string{"body.topic"}},
		{`{"topic":"_schemas"}`, 422, []string{"body.topic"}},
		{`{"topic":"billing.a/b"}`, 422, []string{"body.topic"}},
		{
			`{"topic":"t","payload":1,"payload_text":"x","delay":"1h","deliver_at":"2999-01-01T00:00:00Z","priority":10}`, 422,
			[]string{"body.delay", "body.payload", "body.priority"},
		},
		{`{"topic":"t","delay":"soon"}`, 422, []string{"body.delay"}},
		{`{"topic":"t","delay":"-5s"}`, 422, []string{"body.delay"}},
		{`{"topic":"t","delay":"9999h"}`, 422, []string{"body.delay"}},
		{`{"topic":"t","deliver_at":"2999-01-01T00:00:00Z"}`, 422, []string{"body.deliver_at"}},
		{`{"topic":"t","payload_text":"` + strings.Repeat("x", 101) + `"}`, 422, []string{"body.payload"}},
		{`{"topic":"t","key":"a\u0000b","headers":{"ce_id":"x"},"content_type":"\u0001"}`, 422, []string{"body.content_type", "body.headers.ce_id", "body.key"}},
		{`{"topic":"t","headers":{"priority":"1"},"priority":1}`, 422, []string{"body.headers.priority"}},
		{`{"topic":"t","key":"a","headers":{"ce_partitionkey":"b"}}`, 422, []string{"body.headers.ce_partitionkey"}},
		{`{"topic":"t","headers":{"a":null,"b":"","c":null}}`, 422, []string{"body.headers.a", "body.headers.c"}},
		{`{"topic":"t","headers":{"":"1"}}`, 422, []string{"body.headers."}},
	} {
		r := request(t, b.handler, "POST", "/v1/messages", tt.body)
		if r.status != tt.status || !slices.Equal(r.locations(), tt.want) || r.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("POST %s = %d %s, want %d with %v", tt.body, r.status, r.text, tt.status, tt.want)
		}
	}
	if r := request(t, b.handler, "POST", "/v1/messages", `{"topic":"billing.events"}`); r.status != 202 {
		t.Errorf("POST to an allowed topic = %d %s", r.status, r.text)
	}
	if n := len(b.events(t)); n != 1 {
		t.Errorf("%d events are stored, want the allowed one", n)
	}
	if r := request(t, b.handler, "POST", "/v1/messages", `{"topic":"t","payload":"`+strings.Repeat("x", 10_000)+`"}`); r.status != 413 {
		t.Errorf("POST of a body that is too large = %d %s", r.status, r.text)
	}
}

// What is odd but meant seriously hears what is wrong with it, in words that say
// what to write instead.
func TestHTTP_SaysWhatToWriteInstead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for body, want := range map[string]string{
		`{"topic":"t","deliver_at":"2026-12-31T23:59:60Z"}`:              "no leap second",
		`{"topic":"t","deliver_at":"2027-01-31T08:00:00"}`:               "with its offset",
		`{"topic":"t","deliver_at":1800000000}`:                          "2027-01-31T08:00:00Z",
		`{"topic":"t","delay":"1d"}`:                                     "h for the largest",
		`{"topic":"t","delay":"99999999h"}`:                              "at most 366 days",
		`{"topic":"__consumer_offsets"}`:                                 "begins with _",
		`{"topic":"t","key":"` + strings.Repeat("k", 250) + `"}`:         "the message's id",
		`{"topic":"t","key":"a","headers":{"ce_partitionkey":"b"}}`:      "give key",
		`{"topic":"t","delay":"1h","deliver_at":"2027-01-31T08:00:00Z"}`: "exclude each other",
	} {
		r := request(t, b.handler, "POST", "/v1/messages", body)
		if r.status != 422 || !strings.Contains(r.text, want) {
			t.Errorf("POST %.80s = %d %s, want it to say %q", body, r.status, r.text, want)
		}
	}
	if n := len(b.events(t)); n != 0 {
		t.Errorf("%d events are stored", n)
	}
}

// Times of other zones are times, and what is between milliseconds is never early.
func TestHTTP_TakesTimesOfAnyZone(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC().Truncate(time.Second)
	b := setup(t, func(c *Config) { c.Now = func() time.Time { return now } })
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
		r := request(t, b.handler, "POST", "/v1/messages", `{"topic":"t","deliver_at":"`+at+`"}`)
		switch {
		case want == "" && r.status != 422, want != "" && r.status != 202:
			t.Errorf("POST for %s = %d %s", at, r.status, r.text)
		case want == "now" && r.body["state"] != "queued", want != "" && want != "now" && r.body["deliver_at"] != want:
			t.Errorf("POST for %s = %s, want it for %q", at, r.text, want)
		}
	}
}

// A key that is no key is refused: its caller believes that asking again is safe.
func TestHTTP_RefusesAKeyThatIsNone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, path := range []string{"/v1/messages", "/v1/messages/batch"} {
		body := `{"topic":"t"}`
		if path != "/v1/messages" {
			body = `{"messages":[` + body + `]}`
		}
		for _, keys := range [][]string{{""}, {"a", "b"}, {"a", "a"}, {"ключ"}, {strings.Repeat("k", maxKey+1)}} {
			r := httptest.NewRequestWithContext(t.Context(), "POST", path, strings.NewReader(body))
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
	r := request(t, b.handler, "POST", "/v1/messages/batch", body, "Idempotency-Key", "k")
	if r.status != 207 || r.body["accepted"] != 2.0 || r.body["rejected"] != 3.0 {
		t.Fatalf("POST = %d %s", r.status, r.text)
	}
	results, _ := r.body["results"].([]any)
	for i, want := range []float64{202, 422, 202, 422, 422} {
		one, _ := results[i].(map[string]any)
		if one["index"] != float64(i) || one["status"] != want || (one["message"] != nil) != (want == 202) || (one["problem"] != nil) != (want == 422) {
			t.Errorf("result %d = %v, want status %g", i, one, want)
		}
	}
	again := request(t, b.handler, "POST", "/v1/messages/batch", body, "Idempotency-Key", "k")
	if again.status != 207 || again.text != r.text {
		t.Errorf("the same batch again = %d %s, want %s", again.status, again.text, r.text)
	}
	if len(b.events(t)) != 1 || len(b.waiting(t)) != 1 {
		t.Errorf("%d events and %d waiting messages, want one of each", len(b.events(t)), len(b.waiting(t)))
	}
	for _, bad := range []string{`{"messages":[]}`, `{"messages":[` + strings.Repeat(`{"topic":"t"},`, MaxBatch) + `{"topic":"t"}]}`, `[]`, `{"messages":[],"x":1}`} {
		if r := request(t, b.handler, "POST", "/v1/messages/batch", bad); r.status != 422 {
			t.Errorf("POST %.40s… = %d %.200s", bad, r.status, r.text)
		}
	}
	full := `{"messages":[` + strings.TrimSuffix(strings.Repeat(`{"topic":"t"},`, MaxBatch), ",") + `]}`
	if r := request(t, b.handler, "POST", "/v1/messages/batch", full); r.status != 202 || r.body["accepted"] != float64(MaxBatch) {
		t.Errorf("POST of a full batch = %d %.200s", r.status, r.text)
	}
}

func TestHTTP_SameKeyIsOneMessage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	post := func(body, address string) reply {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/messages", strings.NewReader(body))
		r.Header.Set("Idempotency-Key", "k")
		r.RemoteAddr = address
		w := httptest.NewRecorder()
		b.handler.ServeHTTP(w, r)
		out := reply{status: w.Code, header: w.Result().Header, text: w.Body.String()}
		if err := json.Unmarshal(w.Body.Bytes(), &out.body); err != nil {
			t.Fatal(err)
		}
		return out
	}
	first := post(`{"topic":"t","delay":"1h"}`, "192.0.2.1:1")
	again := post(`{"delay":"1h", "topic":"t"}`, "192.0.2.1:2")
	if first.status != 202 || again.status != 202 || first.id(t) != again.id(t) || again.header.Get("Idempotency-Replayed") != "true" ||
		first.body["deliver_at"] != again.body["deliver_at"] {
		t.Errorf("first %s, again %v %s", first.text, again.header, again.text)
	}
	if r := post(`{"topic":"other"}`, "192.0.2.1:1"); r.status != 422 || r.body["type"] != problemKeyReuse {
		t.Errorf("another message with the key = %d %s", r.status, r.text)
	}
	if other := post(`{"topic":"t","delay":"1h"}`, "192.0.2.2:1"); other.status != 202 || other.id(t) == first.id(t) {
		t.Errorf("another client's same key = %d %s", other.status, other.text)
	}
	// A message that was taken back stays taken back.
	if r := request(t, b.handler, "DELETE", "/v1/messages/"+first.id(t).String(), ""); r.status != 204 {
		t.Fatalf("DELETE = %d %s", r.status, r.text)
	}
	if r := post(`{"topic":"t","delay":"1h"}`, "192.0.2.1:1"); r.status != 202 || r.text != first.text || r.header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("POST again after DELETE = %d %s, want the answer of the first, %s", r.status, r.text, first.text)
	}
	if r := request(t, b.handler, "GET", "/v1/messages/"+first.id(t).String(), ""); r.body["state"] != "cancelled" {
		t.Errorf("GET = %d %s, want it cancelled", r.status, r.text)
	}
	if n := len(b.waiting(t)); n != 1 {
		t.Errorf("%d messages wait, want the other client's", n)
	}
}

func TestHTTP_ScheduledIsSeenListedAndTakenBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ids []gocql.UUID
	for i := range 5 {
		r := request(t, b.handler, "POST", "/v1/messages", fmt.Sprintf(`{"topic":"t","key":"k","delay":"%dm"}`, 50-i))
		if r.status != 202 || r.body["state"] != "scheduled" || r.body["deliver_at"] == nil {
			t.Fatalf("POST = %d %s", r.status, r.text)
		}
		ids = append([]gocql.UUID{r.id(t)}, ids...)
	}
	if n := len(b.events(t)); n != 0 {
		t.Errorf("%d events are in the outbox ahead of time", n)
	}
	var listed []string
	for path := "/v1/messages?state=scheduled&limit=2"; path != ""; {
		r := request(t, b.handler, "GET", path, "")
		page, _ := r.body["messages"].([]any)
		if r.status != 200 || len(page) > 2 {
			t.Fatalf("GET %s = %d %s", path, r.status, r.text)
		}
		for _, m := range page {
			one, _ := m.(map[string]any)
			listed = append(listed, fmt.Sprint(one["id"]))
		}
		path = ""
		if next, ok := r.body["next"].(string); ok {
			path = "/v1/messages?state=scheduled&limit=2&cursor=" + next
		}
	}
	for i, id := range ids {
		if i >= len(listed) || listed[i] != id.String() {
			t.Fatalf("listed %v, want %v", listed, ids)
		}
	}
	for query, want := range map[string]int{"&key=k": 5, "&key=k&topic=t": 5, "&key=other": 0, "&topic=other": 0} {
		if r := request(t, b.handler, "GET", "/v1/messages?state=scheduled"+query, ""); r.status != 200 || len(r.body["messages"].([]any)) != want {
			t.Errorf("GET %s = %d %s, want %d", query, r.status, r.text, want)
		}
	}
	path := "/v1/messages/" + ids[0].String()
	if r := request(t, b.handler, "GET", path, ""); r.status != 200 || r.body["state"] != "scheduled" || r.body["key"] != "k" {
		t.Errorf("GET = %d %s", r.status, r.text)
	}
	for range 2 {
		if r := request(t, b.handler, "DELETE", path, ""); r.status != 204 {
			t.Errorf("DELETE = %d %s", r.status, r.text)
		}
	}
	if r := request(t, b.handler, "GET", path, ""); r.status != 200 || r.body["state"] != "cancelled" {
		t.Errorf("GET after DELETE = %d %s", r.status, r.text)
	}
	if n := len(b.waiting(t)); n != 4 {
		t.Errorf("%d wait, want 4", n)
	}
	for _, bad := range []string{"?state=queued", "", "?state=scheduled&cursor=x", "?state=scheduled&limit=0", "?state=scheduled&from=1900-01-01T00:00:00Z"} {
		if r := request(t, b.handler, "GET", "/v1/messages"+bad, ""); r.status != 422 {
			t.Errorf("GET %s = %d %s", bad, r.status, r.text)
		}
	}
}

func TestHTTP_QueuedCannotBeTakenBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := request(t, b.handler, "POST", "/v1/messages", `{"topic":"t"}`)
	path := "/v1/messages/" + r.id(t).String()
	if r := request(t, b.handler, "DELETE", path, ""); r.status != 409 || r.body["type"] != problemTooLate {
		t.Errorf("DELETE = %d %s", r.status, r.text)
	}
	for _, method := range []string{"GET", "DELETE"} {
		if r := request(t, b.handler, method, "/v1/messages/018f0102-0304-7006-8708-090a0b0c0d0e", ""); r.status != 404 {
			t.Errorf("%s of none = %d %s", method, r.status, r.text)
		}
		if r := request(t, b.handler, method, "/v1/messages/nonsense", ""); r.status != 422 && r.status != 404 {
			t.Errorf("%s of nonsense = %d %s", method, r.status, r.text)
		}
	}
}

// known answers what a test says.
type known struct {
	letter *Letter
	place  *Place
	err    error
}

func (k *known) Letter(context.Context, gocql.UUID) (Letter, bool, error) {
	if k.letter == nil {
		return Letter{}, false, nil
	}
	return *k.letter, true, nil
}

func (k *known) Find(context.Context, string, []byte, gocql.UUID, time.Time) (Place, bool, error) {
	if k.place == nil {
		return Place{}, false, k.err
	}
	return *k.place, true, nil
}

func TestHTTP_StateFollowsLetterAndTopic(t *testing.T) {
	t.Parallel()
	k := &known{}
	b := setup(t, func(c *Config) { c.Letters, c.Finder = k, k })
	path := "/v1/messages/" + request(t, b.handler, "POST", "/v1/messages", `{"topic":"t"}`).id(t).String()
	state := func() string {
		r := request(t, b.handler, "GET", path, "")
		history, _ := r.body["history"].([]any)
		last, _ := history[len(history)-1].(map[string]any)
		if r.status != 200 || last["state"] != r.body["state"] {
			t.Errorf("GET = %d %s, want a history that ends with the state", r.status, r.text)
		}
		return fmt.Sprint(r.body["state"])
	}
	if s := state(); s != "queued" {
		t.Errorf("state %s before it is anywhere, want queued", s)
	}
	for _, s := range []State{DLQPending, DLQProcessing, Retrying, Failed, Resolved, Archived} {
		k.letter = &Letter{State: s, Since: time.Now(), At: time.Now(), Error: "broken"}
		if got := state(); got != string(s) {
			t.Errorf("state %s with a letter that is %s", got, s)
		}
	}
	k.letter, k.err = nil, fmt.Errorf("no broker")
	if r := request(t, b.handler, "GET", path, ""); r.body["state"] != "queued" || r.body["note"] == nil {
		t.Errorf("GET without a broker = %s, want a note", r.text)
	}
	k.place = &Place{Topic: "t", Partition: 3, Offset: 7, At: time.Now()}
	if s := state(); s != "completed" {
		t.Errorf("state %s of a record that is in its topic", s)
	}
}

func TestHTTP_QuotaIsEachClients(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.MessagesPerSecond = 0.001 })
	batch := `{"messages":[` + strings.TrimSuffix(strings.Repeat(`{"topic":"t"},`, MaxBatch), ",") + `]}`
	if r := request(t, b.handler, "POST", "/v1/messages/batch", batch); r.status != 202 {
		t.Fatalf("POST of a full batch = %d %.200s", r.status, r.text)
	}
	r := request(t, b.handler, "POST", "/v1/messages", `{"topic":"t"}`)
	if r.status != 429 || r.body["type"] != problemQuota || r.header.Get("Retry-After") == "" {
		t.Errorf("POST beyond the quota = %d %v %s", r.status, r.header, r.text)
	}
	other := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/messages", strings.NewReader(`{"topic":"t"}`))
	other.RemoteAddr = "192.0.2.77:5"
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, other)
	if w.Code != 202 {
		t.Errorf("POST of another client = %d %s", w.Code, w.Body)
	}
	if n := len(b.events(t)); n != MaxBatch+1 {
		t.Errorf("%d events, want %d", n, MaxBatch+1)
	}
}

// Whatever the database does, an answer of 202 means one event, one of 503
// "nothing stored" none, and a retry with the same key leads to exactly one.
func TestHTTP_AnswersAreTrueWhenWritesFail(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		count  int
		effect faults.Effect
		kinds  []engine.OpKind
		status int
		stored bool
	}{
		"timed out once, not applied":  {1, faults.Effect{Failure: faults.WriteTimeout(faults.Simple, 0, 1)}, []engine.OpKind{engine.OpWrite}, 202, true},
		"timed out once, applied":      {1, faults.Effect{Failure: faults.WriteTimeout(faults.Simple, 0, 1), Fate: engine.FateApply}, []engine.OpKind{engine.OpWrite}, 202, true},
		"connection lost, applied":     {1, faults.Effect{Disconnect: true, Fate: engine.FateApply}, []engine.OpKind{engine.OpWrite}, 202, true},
		"never answers in time":        {0, faults.Effect{Failure: faults.WriteTimeout(faults.Simple, 0, 1)}, []engine.OpKind{engine.OpWrite}, 503, false},
		"unavailable":                  {0, faults.Effect{Failure: faults.Unavailable(0, 1)}, []engine.OpKind{engine.OpWrite}, 503, false},
		"the key is undecided":         {1, faults.Effect{Failure: faults.WriteTimeout(faults.CAS, 1, 2)}, []engine.OpKind{engine.OpCAS}, 202, true},
		"the key is decided, unseen":   {1, faults.Effect{Failure: faults.WriteTimeout(faults.CAS, 1, 2), Fate: engine.FateDecided}, []engine.OpKind{engine.OpCAS}, 202, true},
		"the key cannot be decided on": {0, faults.Effect{Failure: faults.Unavailable(0, 1)}, []engine.OpKind{engine.OpCAS}, 503, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			if tt.count == 0 {
				b.brief()
			}
			hits := b.fault(tt.count, tt.effect, tt.kinds...)
			r := request(t, b.handler, "POST", "/v1/messages", `{"topic":"t","payload":1}`, "Idempotency-Key", "k")
			if r.status != tt.status || hits() == 0 {
				t.Errorf("POST = %d %s after %d faults, want %d", r.status, r.text, hits(), tt.status)
			}
			if r.status == 503 && r.header.Get("Retry-After") == "" {
				t.Error("503 without Retry-After")
			}
			b.node.Faults().Clear()
			if n := len(b.events(t)); (n == 1) != tt.stored {
				t.Errorf("%d events, want stored %t", n, tt.stored)
			}
			var again reply
			for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
				if again = request(t, b.handler, "POST", "/v1/messages", `{"topic":"t","payload":1}`, "Idempotency-Key", "k"); again.status == 202 {
					break
				}
			}
			events := b.events(t)
			if _, ok := events[again.id(t)]; !ok || len(events) != 1 {
				t.Errorf("after a retry there are %d events", len(events))
			}
			if tt.stored && again.id(t) != r.id(t) {
				t.Errorf("the retry has id %s, want %s", again.id(t), r.id(t))
			}
		})
	}
}

func TestHTTP_BreakerOpensAndCloses(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.Breaker.Open = time.Hour })
	closing := b.another(t, func(c *Config) { c.Breaker.Open = 300 * time.Millisecond })
	b.brief()
	closing.cfg.WriteBudget = b.cfg.WriteBudget
	closes := newHandler(closing)
	hits := b.fault(0, faults.Effect{Failure: faults.Unavailable(0, 1)}, engine.OpWrite)
	for range 10 {
		for _, h := range []http.Handler{b.handler, closes} {
			if r := request(t, h, "POST", "/v1/messages", `{"topic":"t"}`); r.status != 503 {
				t.Fatalf("POST = %d %s", r.status, r.text)
			}
		}
	}
	asked := hits()
	r := request(t, b.handler, "POST", "/v1/messages", `{"topic":"t"}`)
	if r.status != 503 || r.header.Get("Retry-After") == "" || r.body["outcome_unknown"] != nil || hits() != asked {
		t.Errorf("POST with an open breaker = %d %v %s, and the database was asked %d times", r.status, r.header, r.text, hits()-asked)
	}
	b.node.Faults().Clear()
	eventually(t, "the breaker closes", func() bool { return request(t, closes, "POST", "/v1/messages", `{"topic":"t"}`).status == 202 })
	if n := len(b.events(t)); n != 1 {
		t.Errorf("%d events, want one", n)
	}
}

// Reads go through the breaker too, so that a database that is away is not asked
// for them, and their successes close it.
func TestHTTP_ReadsHeedTheBreaker(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.Breaker = Breaker{Failures: 3, Open: time.Hour} })
	closing := b.another(t, func(c *Config) { c.Breaker = Breaker{Failures: 3, Open: 300 * time.Millisecond} })
	closes := newHandler(closing)
	stored := request(t, b.handler, "POST", "/v1/messages", `{"topic":"t"}`)
	hits := b.fault(0, faults.Effect{Failure: faults.Unavailable(0, 1)}, engine.OpRead)
	paths := [][2]string{{"GET", "/v1/messages/" + stored.id(t).String()}, {"GET", "/v1/messages?state=scheduled"}, {"DELETE", "/v1/messages/" + stored.id(t).String()}}
	for range 3 {
		for _, h := range []http.Handler{b.handler, closes} {
			if r := request(t, h, "GET", paths[0][1], ""); r.status != 503 {
				t.Fatalf("GET = %d %s", r.status, r.text)
			}
		}
	}
	asked := hits()
	for _, p := range paths {
		if r := request(t, b.handler, p[0], p[1], ""); r.status != 503 || r.header.Get("Retry-After") == "" || r.body["outcome_unknown"] != nil {
			t.Errorf("%s %s with an open breaker = %d %v %s", p[0], p[1], r.status, r.header, r.text)
		}
	}
	if n := hits() - asked; n > 0 {
		t.Errorf("the database was asked %d times", n)
	}
	b.node.Faults().Clear()
	eventually(t, "the breaker closes", func() bool {
		r := request(t, closes, "GET", paths[0][1], "")
		state, _ := closing.guard.Breaker()
		return r.status == 200 && state == "closed"
	})
}

// More than there is room for is refused before anything was begun, single and
// in batches; a batch takes half of the places at most, so that others come in.
func TestHTTP_ShedsLoad(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) {
		c.Load = Load{MaxInFlight: 2, MaxWaiting: 1, MaxWait: 50 * time.Millisecond}
		c.AttemptTimeout, c.WriteBudget = time.Minute, time.Minute
	})
	hits := b.fault(2, faults.Effect{Freeze: true}, engine.OpWrite)
	batch := `{"messages":[{"topic":"t"},{"topic":"t"},{"topic":"t"}]}`
	var wg sync.WaitGroup
	stored := map[string]string{"/v1/messages/batch": batch, "/v1/messages": `{"topic":"t"}`}
	for path, body := range stored {
		wg.Go(func() {
			if r := request(t, b.handler, "POST", path, body); r.status != 202 {
				t.Errorf("POST %s with a place = %d %s", path, r.status, r.text)
			}
		})
	}
	eventually(t, "no place is left", func() bool { return hits() == 2 })
	var refused sync.WaitGroup
	for range 10 {
		for path, body := range stored {
			refused.Go(func() {
				r := request(t, b.handler, "POST", path, body)
				if r.status != 429 || r.header.Get("Retry-After") != "1" || r.body["type"] != problemOverload {
					t.Errorf("POST %s without a place = %d %v %s", path, r.status, r.header, r.text)
				}
			})
		}
	}
	refused.Wait()
	b.node.Faults().Thaw()
	wg.Wait()
	if n := len(b.events(t)); n != 4 {
		t.Errorf("%d events, want the 4 of the requests that had a place", n)
	}
	if n := testutil.ToFloat64(b.metrics.results.WithLabelValues(resultOverload)); n != 20 {
		t.Errorf("%v requests count as shed, want 20, read or unread", n)
	}
	if r := request(t, b.handler, "POST", "/v1/messages", `{"topic":"t"}`); r.status != 202 {
		t.Errorf("after the load: %d %s", r.status, r.text)
	}
}
