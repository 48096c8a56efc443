package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/subscriptions"
	"github.com/scylla-outbox/scylla-outbox/test/subfake"
)

// fixture is a server on a service in memory, which has the subscription "orders".
type fixture struct {
	*Server
	service *subfake.Service
	token   string
}

func setup(t testing.TB, change ...func(*Config)) *fixture {
	t.Helper()
	b := &fixture{service: subfake.New("i1")}
	if _, err := b.service.Put(t.Context(), subscriptions.Subscription{Name: "orders", Topics: []string{"t-i1"}}, ""); err != nil {
		t.Fatal(err)
	}
	c := Config{Service: b.service}
	for _, f := range change {
		f(&c)
	}
	var err error
	if b.Server, err = New(c); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *fixture) publish(n int) {
	for i := range n {
		b.service.Publish("orders", fmt.Sprintf("k%d", i), fmt.Sprintf(`{"n":%d}`, i))
	}
}

// reading is a response whose body is decoded.
type reading struct {
	*httptest.ResponseRecorder
	Messages []struct {
		Receipt string
		Attempt int
		Key     string
		Data    json.RawMessage
	}
	Results []struct {
		Code, Error string
		LeaseUntil  time.Time `json:"lease_until"`
	}
	Type, Detail string
	Errors       []struct{ Location, Message string }
	Version      int64
}

func (b *fixture) ask(t testing.TB, method, path, body string, header ...string) reading {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.Host = "localhost"
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if b.token != "" {
		r.Header.Set("Authorization", "Bearer "+b.token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	b.Handler().ServeHTTP(w, r)
	out := reading{ResponseRecorder: w}
	if w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
			t.Fatalf("%s %s: %s: %v", method, path, w.Body, err)
		}
	}
	return out
}

func (b *fixture) post(t testing.TB, action, body string) reading {
	t.Helper()
	return b.ask(t, http.MethodPost, "/v1/subscriptions/orders/"+action, body)
}

// receive returns the receipts of up to n messages.
func (b *fixture) receive(t testing.TB, n int) []string {
	t.Helper()
	r := b.post(t, "receive", fmt.Sprintf(`{"max":%d}`, n))
	if r.Code != 200 {
		t.Fatalf("receive = %d %s", r.Code, r.Body)
	}
	out := make([]string, len(r.Messages))
	for i := range r.Messages {
		out[i] = r.Messages[i].Receipt
	}
	return out
}

func receipts(rs ...string) string {
	b, _ := json.Marshal(rs)
	return `{"receipts":` + string(b) + `}`
}

func TestConsume_EachAction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.publish(6)
	got := b.receive(t, 6)
	if len(got) != 6 {
		t.Fatalf("received %d messages, want 6", len(got))
	}
	for i, action := range []string{"ack", "nack", "reject", "release", "extend"} {
		r := b.post(t, action, receipts(got[i]))
		if r.Code != 200 || len(r.Results) != 1 || r.Results[0].Code != "ok" {
			t.Errorf("%s = %d %s", action, r.Code, r.Body)
		}
		if (action == "extend") == r.Results[0].LeaseUntil.IsZero() {
			t.Errorf("%s: lease until %s", action, r.Results[0].LeaseUntil)
		}
	}
	if dead := b.service.Dead("orders"); len(dead) != 1 || dead[0].Key != "k2" {
		t.Errorf("dead letters %+v, want the rejected message", dead)
	}
	if again := b.receive(t, 9); len(again) != 1 || b.service.Open("orders") != 4 {
		t.Errorf("received %v after the actions with %d open, want the released message and 4", again, b.service.Open("orders"))
	}
	if r := b.post(t, "receive", `{"auto_ack":true}`); len(r.Messages) != 0 || r.Body.String() != `{"messages":[]}` {
		t.Errorf("nothing to receive = %s", r.Body)
	}
	b.publish(1)
	if r := b.post(t, "receive", `{"auto_ack":true}`); len(r.Messages) != 1 || r.Messages[0].Receipt != "" || string(r.Messages[0].Data) != `{"n":0}` {
		t.Errorf("auto_ack = %s", r.Body)
	}
}

// A lease has the name that the consumer has given to itself behind the one that the server knows.
func TestReceive_NameOfTheConsumer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.publish(2)
	for _, body := range []string{`{"max":1,"consumer":"mailer-7@eu:1"}`, `{"max":1}`} {
		if r := b.post(t, "receive", body); len(r.Messages) != 1 {
			t.Fatalf("receive %s = %s", body, r.Body)
		}
	}
	page, err := b.service.Leases(t.Context(), "orders", "", 9)
	leases := page.Leases
	if err != nil || len(leases) != 2 || leases[1].Consumer == "" || leases[0].Consumer != leases[1].Consumer+"/mailer-7@eu:1" {
		t.Errorf("leases %+v, %v; want the address, and once the name behind it", leases, err)
	}
	if r := b.post(t, "receive", `{"consumer":"a/b"}`); r.Code != 422 || !strings.Contains(r.Body.String(), "body.consumer") {
		t.Errorf("a name with a slash = %d %s", r.Code, r.Body)
	}
}

// The status is 200 only if all is settled, and otherwise the most urgent one.
func TestConsume_TheStatusCannotBeMistaken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.publish(3)
	got := b.receive(t, 3)
	foreign := strings.Replace(got[0], "/orders/", "/other/", 1)
	for _, tt := range []struct {
		receipts []string
		status   int
		typ      string
		codes    string
	}{
		{got[:1], 200, "", "ok"},
		{got[:2], 200, "", "ok ok"}, // a confirmed receipt may be repeated
		{[]string{got[2], got[2] + "0"}, 409, problemExpired, "ok lease_expired"},
		{[]string{got[2] + "0", foreign, "x"}, 422, problemReceipt, "lease_expired invalid_receipt invalid_receipt"},
	} {
		r := b.post(t, "ack", receipts(tt.receipts...))
		var codes []string
		for i := range r.Results {
			codes = append(codes, r.Results[i].Code)
		}
		if r.Code != tt.status || r.Type != tt.typ || strings.Join(codes, " ") != tt.codes {
			t.Errorf("ack of %q = %d %s, want %d %s", tt.receipts, r.Code, r.Body, tt.status, tt.codes)
		}
	}
	for _, code := range []subscriptions.Code{subscriptions.CodeUnknown, subscriptions.CodeUnavailable} {
		b.service.Answer(code)
		r := b.post(t, "ack", receipts("x"))
		if r.Code != 503 || r.Type != problemUnsettled || r.Header().Get("Retry-After") == "" || r.Results[0].Code != string(code) {
			t.Errorf("%s = %d %s %v", code, r.Code, r.Body, r.Header())
		}
	}
}

func TestConsume_ItemsHaveTheirOwnDelays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		b.publish(3)
		got := b.receive(t, 3)
		r := b.post(t, "nack", fmt.Sprintf(`{"delay":"1h","items":[{"receipt":%q,"delay":"0s"},{"receipt":%q}]}`, got[0], got[1]))
		if r.Code != 200 {
			t.Fatalf("nack = %d %s", r.Code, r.Body)
		}
		if r := b.post(t, "nack", receipts(got[2])); r.Code != 200 {
			t.Fatalf("nack = %d %s", r.Code, r.Body)
		}
		began := time.Now()
		for _, want := range []struct {
			key   string
			after time.Duration
		}{{"k0", time.Millisecond}, {"k2", subscriptions.DefaultBackoff}} {
			if r := b.post(t, "receive", `{"wait":"20s"}`); len(r.Messages) != 1 || r.Messages[0].Attempt != 2 || r.Messages[0].Key != want.key || time.Since(began) != want.after {
				t.Errorf("after %s = %s, want %s after %s", time.Since(began), r.Body, want.key, want.after)
			}
		}
		if r := b.post(t, "receive", `{"wait":"20s"}`); len(r.Messages) != 0 {
			t.Errorf("a nack with the common delay of 1h = %s", r.Body)
		}
	})
}

func TestRequests_NameTheField(t *testing.T) {
	t.Parallel()
	b := setup(t)
	many := strings.Repeat(`"x",`, subscriptions.MaxReceipts) + `"x"`
	for _, tt := range []struct {
		action, body string
		status       int
		location     string
	}{
		{"receive", `{"max":0}`, 422, "body.max"},
		{"receive", `{"max":1001}`, 422, "body.max"},
		{"receive", `{"max":"x"}`, 422, "body.max"},
		{"receive", `{"max":1.5}`, 422, "body.max"},
		{"receive", `{"wait":"21s"}`, 422, "body.wait"},
		{"receive", `{"wait":5}`, 422, "body.wait"},
		{"receive", `{"wait":"soon"}`, 422, "body.wait"},
		{"receive", `{"visibility_timeout":"0s"}`, 422, "body.visibility_timeout"},
		{"receive", `{"maximum":1}`, 422, "body.maximum"},
		{"receive", `[]`, 422, "body"},
		{"receive", `{`, 400, "body"},
		{"ack", `{"receipts":[` + many + `]}`, 422, "body.receipts"},
		{"ack", `{}`, 422, "body.receipts"},
		{"ack", `{"receipts":[]}`, 422, "body.receipts"},
		{"ack", `{"receipts":"x"}`, 422, "body.receipts"},
		{"ack", `{"receipts":["x"],"delay":"1s"}`, 422, "body.delay"},
		{"ack", `{"items":[{"receipt":"x"}]}`, 422, "body.items"},
		{"nack", `{"receipts":["x"],"delay":"13h"}`, 422, "body.delay"},
		{"nack", `{"receipts":["x"],"items":[{"receipt":"x"}]}`, 422, "body.items"},
		{"nack", `{"items":[{"receipt":"x"},{"receipt":"y","delay":"x"}]}`, 422, "body.items[1].delay"},
		{"nack", `{"items":[5]}`, 422, "body.items[0]"},
		{"extend", `{"receipts":["x"],"delay":"0s"}`, 422, "body.delay"},
		{"reject", `{"receipts":["x"],"delay":"1s"}`, 422, "body.delay"},
		{"seek", `{"to":"then"}`, 422, "body.to"},
		{"seek", `{"to":"offset","offset":1}`, 422, "body.offset"},
		{"seek", `{"to":"latest","partition":1}`, 422, "body.partition"},
		{"purge", `{"until":"x"}`, 422, "body.until"},
	} {
		r := b.post(t, tt.action, tt.body)
		named := slices.ContainsFunc(r.Errors, func(e struct{ Location, Message string }) bool { return e.Location == tt.location && e.Message != "" })
		if r.Code != tt.status || !named {
			t.Errorf("%s %.60s = %d %s, want %d at %s", tt.action, tt.body, r.Code, r.Body, tt.status, tt.location)
		}
	}
	r := b.post(t, "ack", `{"receipts":["`+strings.Repeat("x", maxBody)+`"]}`)
	if r.Code != 413 || !strings.Contains(r.Detail, "limit") {
		t.Errorf("a body of 4 MiB = %d %s, want 413", r.Code, r.Body)
	}
}

// 100,000 receipts in one request are refused: within the limit of a body by an error that
// names the limit of receipts, beyond it before the body is read. The memory is bounded by
// the body.
func TestRequests_TooManyReceipts(t *testing.T) {
	b := setup(t)
	const many, bounded = 100_000, 64 << 20
	for _, tt := range []struct {
		action, item, list string
		status             int
		limit              string
	}{
		{"ack", `"receipt"`, "receipts", 422, "1000"},
		{"nack", `{"receipt":"a"}`, "items", 422, "1000"},
		{"ack", `"` + strings.Repeat("A", 110) + `"`, "receipts", 413, "4194304"},
	} {
		body := `{"` + tt.list + `":[` + strings.Repeat(tt.item+",", many-1) + tt.item + `]}`
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := b.post(t, tt.action, body)
		runtime.ReadMemStats(&after)
		if r.Code != tt.status || !strings.Contains(r.Body.String(), tt.limit) {
			t.Errorf("%d %s of %s = %d %s, want %d and the limit %s", many, tt.list, tt.action, r.Code, r.Body, tt.status, tt.limit)
		}
		if n := after.TotalAlloc - before.TotalAlloc; n > bounded {
			t.Errorf("%d %s of %s allocated %d bytes, want at most %d", many, tt.list, tt.action, n, bounded)
		}
	}
}

// Receipts with any bytes are invalid, not an error of the server, and change nothing.
func TestRequests_ReceiptsWithEveryByte(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.publish(1)
	receipt := b.receive(t, 1)[0]
	var forged []string
	for c := range 256 {
		forged = append(forged, string(rune(c)), strings.Repeat(string(rune(c)), 500))
	}
	for _, action := range []string{"ack", "nack", "reject", "release", "extend"} {
		r := b.post(t, action, receipts(forged...))
		if r.Code != 422 || len(r.Results) != len(forged) {
			t.Fatalf("%s of forged receipts = %d with %d results", action, r.Code, len(r.Results))
		}
		for i := range r.Results {
			if r.Results[i].Code != "invalid_receipt" {
				t.Errorf("%s of %q = %s", action, forged[i], r.Results[i].Code)
			}
		}
	}
	if r := b.post(t, "ack", receipts(receipt)); r.Code != 200 {
		t.Errorf("ack of the message itself = %d %s", r.Code, r.Body)
	}
}

// No byte in a name reaches the service or breaks a response.
func TestRequests_NamesWithEveryByte(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for c := range 256 {
		if ch := byte(c); ch == '-' || ch == '_' || ch >= '0' && ch <= '9' || ch >= 'a' && ch <= 'z' || ch >= 'A' && ch <= 'Z' {
			continue
		}
		r := b.ask(t, http.MethodPost, fmt.Sprintf("/v1/subscriptions/a%%%02xb/receive", c), `{}`)
		if r.Code != 422 && r.Code != 404 {
			t.Errorf("name with byte %#x = %d %s", c, r.Code, r.Body)
		}
	}
	if r := b.ask(t, http.MethodPut, "/v1/subscriptions/"+strings.Repeat("n", 61), `{"topics":["a"]}`); r.Code != 422 || r.Errors[0].Location != "path.name" {
		t.Errorf("a name of 61 = %d %s", r.Code, r.Body)
	}
}

func TestResource_LifeCycle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const path = "/v1/subscriptions/mail"
	if r := b.ask(t, http.MethodPut, path, `{"topics":[],"ordering":"x","max_backoff":"1ms"}`); r.Code != 422 ||
		r.Errors[0].Location != "body.topics" || len(r.Errors) != 3 {
		t.Errorf("PUT of invalid fields = %d %s", r.Code, r.Body)
	}
	r := b.ask(t, http.MethodPut, path, `{"topics":["OrderCreated"],"visibility_timeout":"5m"}`)
	if r.Code != 201 || r.Version != 1 {
		t.Fatalf("PUT = %d %s, want 201", r.Code, r.Body)
	}
	if r := b.ask(t, http.MethodPut, path, `{"topics":["OrderCreated"]}`, "If-None-Match", "*"); r.Code != 412 || r.Type != problemStale {
		t.Errorf("PUT of what exists with If-None-Match = %d %s", r.Code, r.Body)
	}
	if r := b.ask(t, http.MethodPut, "/v1/subscriptions/fresh", `{"topics":["a"]}`, "If-None-Match", "*", "If-Match", `"1"`); r.Code != 412 {
		t.Errorf("PUT with both conditions = %d %s", r.Code, r.Body)
	}
	if r := b.ask(t, http.MethodPut, "/v1/subscriptions/fresh", `{"topics":["a"]}`, "If-None-Match", "*"); r.Code != 201 {
		t.Errorf("PUT of a new one with If-None-Match = %d %s", r.Code, r.Body)
	}
	for body, at := range map[string]string{
		`{"topics":["a"],"dead_letter":{"name":"a b"}}`: "body.dead_letter.name", `{"topics":["a"],"dead_letter":{"retention_days":0}}`: "body.dead_letter.retention_days",
		`{"topics":["a"],"dead_letter":{"retention":"4d"}}`: "body.dead_letter.retention", `{"topics":["a"],"dead_letter":4}`: "body.dead_letter",
		`{"topics":["a"],"max_extension":"13h"}`: "body.max_extension", `{"topics":["a"],"visibility_timeout":"5m","max_extension":"1m"}`: "body.max_extension", `{"topics":["a"],"max_extension":5}`: "body.max_extension",
		`{"topics":["a"],"push":{}}`: "body.push.to", `{"topics":["a"],"push":5}`: "body.push", `{"topics":["a"],"push":{"to":"x","url":"secret"}}`: "body.push.url",
		`{"topics":["a"],"transform":"data ==\n x + y"}`: "body.transform", `{"topics":["a"],"transform":"{\"body\": data}"}`: "body.transform", `{"topics":["a"],"transform":{}}`: "body.transform",
		`{"topics":["a"],"push":{"to":"x","severity":"bad"}}`: "body.push.severity", `{"topics":["a"],"push":{"to":"x","concurrency":1001}}`: "body.push.concurrency",
	} {
		if r := b.ask(t, http.MethodPut, "/v1/subscriptions/pushed", body); r.Code != 422 || len(r.Errors) != 1 || r.Errors[0].Location != at {
			t.Errorf("PUT of %s = %d %s, want an error at %s", body, r.Code, r.Body, at)
		}
	}
	named := b.ask(t, http.MethodPut, "/v1/subscriptions/named", `{"topics":["a"],"dead_letter":{"name":"my-dlq","retention_days":4}}`)
	if again := b.ask(t, http.MethodPut, "/v1/subscriptions/named", named.Body.String()); again.Code != 200 || !strings.Contains(again.Body.String(), `"dead_letter":{"name":"my-dlq","retention_days":4}`) {
		t.Errorf("PUT with dead_letter = %s, then %s", named.Body, again.Body)
	}
	const transform = `"transform":"{\"payload\": data.order, \"headers\": {\"tenant\": null}}"`
	changed := b.ask(t, http.MethodPut, "/v1/subscriptions/changed", `{"topics":["a"],`+transform+`}`)
	if again := b.ask(t, http.MethodPut, "/v1/subscriptions/changed", changed.Body.String()); again.Code != 200 || !strings.Contains(again.Body.String(), transform) {
		t.Errorf("PUT with transform = %s, then %s", changed.Body, again.Body)
	}
	limited := b.ask(t, http.MethodPut, "/v1/subscriptions/limited", `{"topics":["a"],"max_extension":"10m"}`)
	if again := b.ask(t, http.MethodPut, "/v1/subscriptions/limited", limited.Body.String()); again.Code != 200 || !strings.Contains(again.Body.String(), `"max_extension":"10m"`) {
		t.Errorf("PUT with max_extension = %s, then %s", limited.Body, again.Body)
	}
	pushed := b.ask(t, http.MethodPut, "/v1/subscriptions/pushed", `{"topics":["a"],"push":{"to":"ops","title":"t","concurrency":9}}`)
	if again := b.ask(t, http.MethodPut, "/v1/subscriptions/pushed", pushed.Body.String()); again.Code != 200 ||
		!strings.Contains(again.Body.String(), `"push":{"to":"ops","title":"t","severity":"info","concurrency":9}`) {
		t.Errorf("PUT with push = %s, then %s", pushed.Body, again.Body)
	}
	if r := b.ask(t, http.MethodPost, "/v1/subscriptions/pushed/receive", `{}`); r.Code != 422 || r.Errors[0].Location != "body.push" {
		t.Errorf("receive of a subscription with push = %d %s", r.Code, r.Body)
	}
	read := b.ask(t, http.MethodGet, path, "")
	if read.Code != 200 || !bytes.Equal(bytes.TrimSpace(read.Body.Bytes()), bytes.TrimSpace(r.Body.Bytes())) || !strings.Contains(read.Body.String(), `"visibility_timeout":"5m"`) {
		t.Errorf("GET = %s, PUT = %s", read.Body, r.Body)
	}
	// What GET returns can be sent back. With its ETag, once: the version is then old.
	if got := read.Header().Get("ETag"); got != `"1"` || r.Header().Get("ETag") != got {
		t.Errorf("GET has the ETag %s, PUT %s", got, r.Header().Get("ETag"))
	}
	if r := b.ask(t, http.MethodGet, path, "", "If-None-Match", `"1"`); r.Code != http.StatusNotModified || r.Body.Len() > 0 {
		t.Errorf("GET of what the client has = %d %s, want 304", r.Code, r.Body)
	}
	if r := b.ask(t, http.MethodPut, path, read.Body.String(), "If-Match", `"1"`); r.Code != 200 || r.Version != 2 || r.Header().Get("ETag") != `"2"` {
		t.Errorf("PUT of the response of GET = %d %s", r.Code, r.Body)
	}
	if r := b.ask(t, http.MethodPut, path, read.Body.String(), "If-Match", `"1"`); r.Code != 412 || r.Type != problemStale {
		t.Errorf("PUT of an old version = %d %s", r.Code, r.Body)
	}
	if r := b.ask(t, http.MethodPut, path, read.Body.String()); r.Code != 412 || r.Type != problemStale {
		t.Errorf("PUT of a body with an old version = %d %s", r.Code, r.Body)
	}
	now := strings.Replace(read.Body.String(), `"version":1`, `"version":2`, 1)
	for _, other := range []string{`W/"2"`, `"1", "3"`, `"0"`} {
		if r := b.ask(t, http.MethodPut, path, now, "If-Match", other); r.Code != 412 || r.Type != problemStale {
			t.Errorf("PUT with If-Match %s = %d %s", other, r.Code, r.Body)
		}
	}
	if r := b.ask(t, http.MethodPut, path, now, "If-Match", `"3"`); r.Code != 412 {
		t.Errorf("PUT with another version than If-Match = %d %s", r.Code, r.Body)
	}
	for i, fits := range []string{"*", `"1", "3"`, ""} {
		body := strings.Replace(read.Body.String(), `"version":1`, fmt.Sprintf(`"version":%d`, 2+i), 1)
		if r := b.ask(t, http.MethodPut, path, body, "If-Match", fits); r.Code != 200 || r.Version != int64(3+i) {
			t.Errorf("PUT with If-Match %s = %d %s", fits, r.Code, r.Body)
		}
	}
	if r := b.ask(t, http.MethodPut, path+"-other", `{"topics":["a"]}`, "If-Match", "*"); r.Code != 412 {
		t.Errorf("PUT of a new one with If-Match * = %d %s", r.Code, r.Body)
	}
	if r := b.ask(t, http.MethodPut, path, `{"topics":["a"]}`, "If-None-Match", `"1", W/"5"`); r.Code != 412 {
		t.Errorf("PUT of a version in If-None-Match = %d %s", r.Code, r.Body)
	}
	if r := b.ask(t, http.MethodPut, path, `{"topics":["a"]}`, "If-None-Match", `"1"`); r.Code != 200 {
		t.Errorf("PUT of another version than in If-None-Match = %d %s", r.Code, r.Body)
	}
	for _, odd := range []string{"1", `"1`, `"1",`} {
		if r := b.ask(t, http.MethodPut, path, read.Body.String(), "If-Match", odd); r.Code != 422 || r.Errors[0].Location != "header.If-Match" {
			t.Errorf("PUT with If-Match %s = %d %s", odd, r.Code, r.Body)
		}
	}
	for body, at := range map[string]string{`{"topics":["a"],"version":"1"}`: "body.version", `{"topics":["a"],"created_at":"now"}`: "body.created_at", `{"topics":null}`: "body.topics"} {
		if r := b.ask(t, http.MethodPut, path, body); r.Code != 422 || r.Errors[0].Location != at {
			t.Errorf("PUT of %s = %d %s, want an error at %s", body, r.Code, r.Body, at)
		}
	}
	if r := b.ask(t, http.MethodGet, "/v1/subscriptions", ""); r.Code != 200 || !strings.Contains(r.Body.String(), `"mail"`) || !strings.Contains(r.Body.String(), `"orders"`) {
		t.Errorf("list = %d %s", r.Code, r.Body)
	}
	if r := b.ask(t, http.MethodPost, path+"/pause", ""); r.Code != 204 {
		t.Errorf("pause = %d %s", r.Code, r.Body)
	}
	if r := b.ask(t, http.MethodPut, path, `{"topics":["OrderCreated"]}`); r.Code != 200 || !strings.Contains(r.Body.String(), `"paused":true`) {
		t.Errorf("PUT without paused of a paused subscription = %d %s", r.Code, r.Body)
	}
	if s, _ := b.service.Get(t.Context(), "mail"); !s.Paused {
		t.Error("the subscription is not paused")
	}
	if r := b.ask(t, http.MethodPost, path+"/resume", ""); r.Code != 204 {
		t.Errorf("resume = %d %s", r.Code, r.Body)
	}
	if r := b.ask(t, http.MethodPost, path+"/seek", `{"to":"offset","topic":"OrderCreated","partition":0,"offset":7}`); r.Code != 204 {
		t.Errorf("seek = %d %s", r.Code, r.Body)
	}
	if got := b.service.Seeks(); len(got) != 1 || got[0] != (subscriptions.Seek{To: "offset", Topic: "OrderCreated", Offset: 7}) {
		t.Errorf("seeks %+v", got)
	}
	b.service.Publish("mail", "k", `{}`)
	for _, tt := range []struct{ body, want string }{{``, `"dry_run":true,"count":1`}, {`{"dry_run":false}`, `"dry_run":false,"count":1`}, {`{}`, `"count":0`}} {
		if r := b.ask(t, http.MethodPost, path+"/purge", tt.body); r.Code != 200 || !strings.Contains(r.Body.String(), tt.want) {
			t.Errorf("purge %s = %d %s, want %s", tt.body, r.Code, r.Body, tt.want)
		}
	}
	if r := b.ask(t, http.MethodGet, path+"/status", ""); r.Code != 200 || !strings.Contains(r.Body.String(), `"owner":"i1"`) {
		t.Errorf("status = %d %s", r.Code, r.Body)
	}
	if r := b.ask(t, http.MethodDelete, path, "", "If-Match", `"1"`); r.Code != 412 {
		t.Errorf("DELETE of an old version = %d %s", r.Code, r.Body)
	}
	if r := b.ask(t, http.MethodDelete, path, ""); r.Code != 204 {
		t.Errorf("DELETE = %d %s", r.Code, r.Body)
	}
	for _, action := range []string{"receive", "pause", "purge"} {
		if r := b.ask(t, http.MethodPost, path+"/"+action, ""); r.Code != 404 || r.Type != problemNotFound {
			t.Errorf("%s of a deleted subscription = %d %s", action, r.Code, r.Body)
		}
	}
	b.service.Fail(fmt.Errorf("scylla: %w", errors.Join(subscriptions.ErrUnavailable, errors.New("secret"))))
	if r := b.ask(t, http.MethodGet, "/v1/subscriptions", ""); r.Code != 503 || r.Header().Get("Retry-After") == "" || strings.Contains(r.Body.String(), "secret") {
		t.Errorf("unavailable = %d %s", r.Code, r.Body)
	}
}

// Each operation needs its role; a consumer has its subscriptions only.
func TestAccess_EachRoleByEachOperation(t *testing.T) {
	t.Parallel()
	roles := []access.Role{access.Viewer, access.Operator, access.Admin, "consumer(ord*)", "consumer(mail)", ""}
	secrets := map[access.Role]string{}
	var tokens []access.Token
	for i, role := range roles[:5] {
		secret, hash := access.NewToken()
		secrets[role] = secret
		tokens = append(tokens, access.Token{Name: fmt.Sprint("t", i), Role: role, Hash: hash})
	}
	gate, err := access.New(access.Config{Tokens: tokens})
	if err != nil {
		t.Fatal(err)
	}
	b := setup(t, func(c *Config) { c.Gate = gate })
	for _, tt := range []struct {
		method, path, body string
		may                string // of roles: v, o, a, and c for the consumer of orders
	}{
		{"GET", "", "", "voa"},
		{"GET", "/orders", "", "voac"},
		{"GET", "/orders/status", "", "voac"},
		{"GET", "/orders/leases", "", "voac"},
		{"POST", "/orders/receive", "{}", "oac"},
		{"POST", "/orders/ack", `{"receipts":["x"]}`, "oac"},
		{"POST", "/orders/nack", `{"receipts":["x"]}`, "oac"},
		{"POST", "/orders/extend", `{"receipts":["x"]}`, "oac"},
		{"POST", "/orders/reject", `{"receipts":["x"]}`, "oac"},
		{"POST", "/orders/release", `{"receipts":["x"]}`, "oac"},
		{"HEAD", "/orders/stream", "", "oac"},
		{"DELETE", "/orders/leases/t:0:1:1", "", "oa"},
		{"POST", "/orders/pause", "", "oa"},
		{"POST", "/orders/resume", "", "oa"},
		{"POST", "/orders/seek", `{"to":"latest"}`, "oa"},
		{"POST", "/orders/purge", "{}", "a"},
		{"PUT", "/orders", `{"topics":["t"]}`, "a"},
		{"DELETE", "/none", "", "a"},
	} {
		for i, role := range roles {
			b.token = secrets[role]
			r := b.ask(t, tt.method, "/v1/subscriptions"+tt.path, tt.body)
			permitted := i < 4 && strings.ContainsRune(tt.may, rune("voac"[i]))
			want := 403
			if role == "" {
				want = 401
			}
			if permitted && (r.Code == 401 || r.Code == 403) || !permitted && r.Code != want {
				t.Errorf("%s %s by %q = %d %s, permitted %v", tt.method, tt.path, role, r.Code, r.Body, permitted)
			}
		}
	}
}

// A request that waits costs no query and no goroutine but its own, and ends when a
// message arrives.
func TestReceive_Waits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		began := time.Now()
		if r := b.post(t, "receive", `{"wait":"20s"}`); r.Code != 200 || len(r.Messages) != 0 || time.Since(began) != 20*time.Second {
			t.Errorf("without messages = %d %s after %s", r.Code, r.Body, time.Since(began))
		}
		go func() {
			time.Sleep(7 * time.Second)
			b.publish(1)
		}()
		began = time.Now()
		if r := b.post(t, "receive", `{"wait":"20s"}`); len(r.Messages) != 1 || time.Since(began) != 7*time.Second {
			t.Errorf("with a message after 7 s = %s after %s", r.Body, time.Since(began))
		}
	})
}

// A stopping server ends waiting requests with an empty list.
func TestReceive_EndsWithTheServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t)
		began := time.Now()
		time.AfterFunc(3*time.Second, b.Drain)
		r := b.post(t, "receive", `{"wait":"20s"}`)
		if r.Code != 200 || r.Body.String() != `{"messages":[]}` || time.Since(began) != 3*time.Second {
			t.Errorf("receive of a stopping server = %d %s after %s", r.Code, r.Body, time.Since(began))
		}
		if ready, _ := b.Readiness(); ready {
			t.Error("a stopping server is ready")
		}
		b.publish(1)
		if r := b.post(t, "receive", `{"wait":"20s"}`); len(r.Messages) != 1 {
			t.Errorf("receive while it drains = %s, want what is there", r.Body)
		}
	})
}

func TestReceive_PlacesAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := setup(t, func(c *Config) { c.MaxWaiting = 1 })
		first := make(chan int)
		go func() { first <- b.post(t, "receive", `{"wait":"20s"}`).Code }()
		synctest.Wait()
		if r := b.post(t, "receive", `{"wait":"1s"}`); r.Code != 429 || r.Type != problemFull {
			t.Errorf("a second waiting request = %d %s, want 429", r.Code, r.Body)
		}
		if r := b.post(t, "receive", `{}`); r.Code != 200 {
			t.Errorf("a request that does not wait = %d", r.Code)
		}
		if got := <-first; got != 200 {
			t.Errorf("the first request = %d", got)
		}
	})
}

func TestServer_DescribesItself(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, path := range []string{"/openapi.json", "/livez", "/readyz", "/problems"} {
		if r := b.ask(t, http.MethodGet, path, ""); r.Code != 200 {
			t.Errorf("%s = %d %s", path, r.Code, r.Body)
		}
	}
	doc, err := b.OpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"lease_until"`, `"/v1/subscriptions/{name}/nack"`, `"lease_expired"`, `"visibility_timeout"`, "lease-expired"} {
		if !bytes.Contains(doc, []byte(want)) {
			t.Errorf("the description does not contain %s", want)
		}
	}
	if r := b.ask(t, http.MethodGet, "/v1/none", ""); r.Code != 404 || r.Type == "" {
		t.Errorf("no endpoint = %d %s", r.Code, r.Body)
	}
	if r := b.ask(t, http.MethodPatch, "/v1/subscriptions/orders", ""); r.Code != 405 || r.Header().Get("Allow") == "" {
		t.Errorf("PATCH = %d %s", r.Code, r.Body)
	}
}
