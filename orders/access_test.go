package orders

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/gocql/gocql"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/apiserver"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

func TestHTTP_Access(t *testing.T) {
	t.Parallel()
	b := setup(t)
	reader, readerHash := access.NewToken()
	writer, writerHash := access.NewToken()
	gate, err := access.New(access.Config{
		Tokens:            []access.Token{{Name: "reader", Role: access.Viewer, Hash: readerHash}, {Name: "writer", Role: access.Operator, Hash: writerHash}},
		RequestsPerSecond: 0.001, RequestsBurst: 14,
	})
	if err != nil {
		t.Fatal(err)
	}
	h := newHandler(t, b.Service, apiserver.Config{Gate: gate})
	as := func(token, method, path, body string) world.Response {
		return world.Request(t, h, method, path, body, "Authorization", "Bearer "+token, "If-Match", `"1"`)
	}
	for _, op := range [][2]string{
		{"POST", "/v1/orders"},
		{"GET", "/v1/orders?customer_id=1"},
		{"GET", "/v1/orders/" + exampleID},
		{"PATCH", "/v1/orders/" + exampleID},
		{"POST", "/v1/orders/" + exampleID + "/confirm"},
		{"POST", "/v1/orders/" + exampleID + "/ship"},
		{"POST", "/v1/orders/" + exampleID + "/cancel"},
	} {
		r := world.Request(t, h, op[0], op[1], goodBody)
		r.MustBeProblem(t, 401, httpapi.TypeUnauthorized)
		if !strings.HasPrefix(r.Header.Get("WWW-Authenticate"), "Bearer") {
			t.Errorf("%s %s: no WWW-Authenticate", op[0], op[1])
		}
		if op[0] != "GET" {
			as(reader, op[0], op[1], goodBody).MustBeProblem(t, 403, httpapi.TypeForbidden)
		}
	}
	as("obx_wrong", "GET", "/v1/orders?customer_id=1", "").MustBeProblem(t, 401, httpapi.TypeUnauthorized)
	if n := b.Session.Query("SELECT id FROM orders").Iter().NumRows(); n != 0 {
		t.Fatalf("%d orders were stored without the role", n)
	}
	created := as(writer, "POST", "/v1/orders", goodBody)
	id, _ := created.Body["id"].(string)
	if created.Status != 201 {
		t.Fatalf("create = %d %s", created.Status, created.Text)
	}
	if r := as(reader, "GET", "/v1/orders/"+id, ""); r.Status != 200 {
		t.Errorf("get = %d %s", r.Status, r.Text)
	}
	// Public routes need no token.
	for _, path := range []string{"/openapi.json", "/asyncapi.json", "/docs", "/problems", "/livez", "/readyz"} {
		if r := world.Request(t, h, "GET", path, ""); r.Status != 200 {
			t.Errorf("%s = %d without a token", path, r.Status)
		}
	}
	var limited world.Response
	for range 20 {
		if limited = as(reader, "GET", "/v1/orders/"+id, ""); limited.Status == http.StatusTooManyRequests {
			break
		}
	}
	limited.MustBeProblem(t, 429, httpapi.TypeRate)
	if limited.Header.Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
	if r := as(writer, "GET", "/v1/orders/"+id, ""); r.Status != 200 {
		t.Errorf("another token = %d, want its own limit", r.Status)
	}
	doc := world.Request(t, h, "GET", "/openapi.json", "")
	for _, want := range []string{`"securitySchemes"`, `"x-role":"operator"`, `"401"`} {
		if !strings.Contains(doc.Text, want) {
			t.Errorf("the description lacks %s", want)
		}
	}
}

// Clients do not share Idempotency-Keys.
func TestHTTP_IdempotencyKeysAreEachTokensOwn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one, oneHash := access.NewToken()
	two, twoHash := access.NewToken()
	gate, err := access.New(access.Config{
		Tokens: []access.Token{{Name: "shop", Role: access.Operator, Hash: oneHash}, {Name: "till", Role: access.Operator, Hash: twoHash}},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := newHandler(t, b.Service, apiserver.Config{Gate: gate})
	as := func(token, path, body string) world.Response {
		return world.Request(t, h, "POST", path, body, "Authorization", "Bearer "+token, "Idempotency-Key", "1")
	}
	first, second := as(one, "/v1/orders", goodBody), as(two, "/v1/orders", goodBody)
	if first.Status != 201 || second.Status != 201 || first.Body["id"] == second.Body["id"] || second.Header.Get("Idempotency-Replayed") != "" {
		t.Errorf("the same order by another = %d %s, after %s", second.Status, second.Text, first.Text)
	}
	if again := as(one, "/v1/orders", goodBody); again.Body["id"] != first.Body["id"] || again.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("the first again = %d %s, want %s", again.Status, again.Text, first.Text)
	}
	id, _ := second.Body["id"].(string)
	as(two, "/v1/orders/"+id+"/cancel", "{}").MustBeProblem(t, 422, problemKeyReuse)
	if n := b.Session.Query("SELECT id FROM orders").Iter().NumRows(); n != 2 {
		t.Errorf("%d orders, want 2", n)
	}
}

// A cancellation's key is the token's own, too.
func TestHTTP_IdempotencyKeysOfChangesAreEachTokensOwn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.mustCreate(t)
	for _, client := range []string{"shop", "till"} {
		r, err := b.Confirm(t.Context(), o.ID, Confirmation{}, WriteOptions{Client: client, IdempotencyKey: "1"})
		if client == "shop" && (err != nil || r.Replayed) {
			t.Errorf("by the first: %+v, %v", r, err)
		}
		if conflict := (*ConflictError)(nil); client == "till" && !errors.As(err, &conflict) {
			t.Errorf("by another client: %+v, %v, want that it is confirmed already", r, err)
		}
	}
}

// Browsers must not run, frame, sniff or cache a response.
func TestHTTP_AnswersAreNoPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	h := newHandler(t, b.Service, apiserver.Config{})
	created := world.Request(t, h, "POST", "/v1/orders", goodBody)
	id, _ := created.Body["id"].(string)
	for name, r := range map[string]world.Response{
		"an order": world.Request(t, h, "GET", "/v1/orders/"+id, ""), "a problem": world.Request(t, h, "GET", "/v1/orders/"+exampleID, ""),
		"no path": world.Request(t, h, "GET", "/<script>", ""),
		"refused": world.Request(t, h, "POST", "/v1/orders", goodBody, "Origin", "https://elsewhere.example"),
	} {
		for header, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Cache-Control": "no-store", "Content-Security-Policy": "default-src 'none'",
		} {
			if got := r.Header.Get(header); !strings.HasPrefix(got, want) {
				t.Errorf("%s, %d: %s is %q, want %s", name, r.Status, header, got, want)
			}
		}
	}
	if docs := world.Request(t, h, "GET", "/docs", "").Header.Get("Content-Security-Policy"); !strings.Contains(docs, "script-src 'self'") {
		t.Errorf("/docs has the policy %q, want it to run its own scripts", docs)
	}
}

// The response contains the id of the request, the event its id and trace.
func TestHTTP_RequestIDAndTrace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	h := newHandler(t, b.Service, apiserver.Config{})
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	r := world.Request(t, h, "POST", "/v1/orders", goodBody, "X-Request-Id", "req-1", "traceparent", trace)
	id, _ := r.Body["id"].(string)
	confirmed := world.Request(t, h, "POST", "/v1/orders/"+id+"/confirm", "")
	made := confirmed.Header.Get("X-Request-Id")
	if r.Header.Get("X-Request-Id") != "req-1" || made == "" {
		t.Errorf("X-Request-Id = %q and %q, want req-1 and a generated one", r.Header.Get("X-Request-Id"), made)
	}
	uuid, err := gocql.ParseUUID(id)
	if err != nil {
		t.Fatal(err)
	}
	events := b.readStored(t, uuid).events
	if h := events[0].Headers; h[outbox.HeaderRequestID] != "req-1" || h[outbox.HeaderTraceParent] != trace {
		t.Errorf("headers of the first event = %v", h)
	}
	if h := events[1].Headers; h[outbox.HeaderRequestID] != made || h[outbox.HeaderTraceParent] != "" {
		t.Errorf("headers of the second event = %v, want %s and no trace", h, made)
	}
}

// Behind a proxy, wrong tokens count per client, not per proxy.
func TestHTTP_WrongTokensBehindAProxy(t *testing.T) {
	t.Parallel()
	_, hash := access.NewToken()
	gate, err := access.New(access.Config{Tokens: []access.Token{{Name: "reader", Role: access.Viewer, Hash: hash}}, FailuresPerMinute: 1})
	if err != nil {
		t.Fatal(err)
	}
	proxies, err := access.NewProxies([]string{"192.0.2.1"}) // httptest's caller
	if err != nil {
		t.Fatal(err)
	}
	h := newHandler(t, setup(t).Service, apiserver.Config{Gate: gate, Proxies: proxies})
	for _, tt := range []struct {
		caller string
		status int
		kind   string
	}{{"203.0.113.5", 401, httpapi.TypeUnauthorized}, {"203.0.113.5", 429, httpapi.TypeRate}, {"203.0.113.6", 401, httpapi.TypeUnauthorized}} {
		world.Request(t, h, "GET", "/v1/orders?customer_id=1", "", "Authorization", "Bearer wrong", "X-Forwarded-For", tt.caller).MustBeProblem(t, tt.status, tt.kind)
	}
}
