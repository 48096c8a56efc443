package orders

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gocql/gocql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/engine"
	"github.com/scylla-outbox/scylla-outbox/devkit/scyllafake/faults"
	"github.com/scylla-outbox/scylla-outbox/internal/apiserver"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/outbox"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

const goodBody = `{"invoice":"536365","customer_id":"17850","country":"United Kingdom","placed_at":"2010-12-01T08:26:00Z","currency":"GBP",` +
	`"lines":[{"sku":"84029E","description":"RED WOOLLY HOTTIE","quantity":6,"unit_price":"3.39"},{"sku":"71053","quantity":1,"unit_price":2.50}]}`

// newHandler is the API of a service; s may lack a session where no request
// gets that far.
func newHandler(t testing.TB, s *Service, cfg apiserver.Config) http.Handler {
	t.Helper()
	return newServer(t, s, cfg).Handler()
}

func newServer(t testing.TB, s *Service, cfg apiserver.Config) *apiserver.Server {
	t.Helper()
	api, err := s.HTTP()
	if err != nil {
		t.Fatal(err)
	}
	srv, err := apiserver.New(api, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return srv
}

func withoutDatabase(t testing.TB) http.Handler {
	t.Helper()
	s, err := New(nil, Config{})
	if err != nil {
		t.Fatal(err)
	}
	return newHandler(t, s, apiserver.Config{})
}

func TestHTTP_BadRequestsAreProblems(t *testing.T) {
	t.Parallel()
	h := withoutDatabase(t)
	id := gocql.UUID{1}.String()
	long := strings.Repeat("x", MaxBodyBytes)
	tests := []struct {
		name, method, path, body string
		header                   []string
		status                   int
		typ                      string
		locations                []string
	}{
		{"no body", "POST", "/v1/orders", "", nil, 400, problemMalformed, nil},
		{"no JSON", "POST", "/v1/orders", "{", nil, 400, problemMalformed, []string{"body"}},
		{"no object", "POST", "/v1/orders", "[]", nil, 422, problemInvalid, []string{"body"}},
		{"two values", "POST", "/v1/orders", goodBody + "{}", nil, 400, problemMalformed, []string{"body"}},
		{"empty object", "POST", "/v1/orders", "{}", nil, 422, problemInvalid, []string{"body.country", "body.currency", "body.lines"}},
		{
			"every field and the key", "POST", "/v1/orders",
			`{"invoice":1,"country":"","currency":"xx","extra":1,"lines":[{"sku":"","quantity":0,"unit_price":"-1"},{"sku":"a","quantity":"1","unit_price":1e3}]}`,
			[]string{"Idempotency-Key", "a b"},
			422, problemInvalid,
			[]string{
				"body.invoice", "body.extra", "body.lines[1].quantity", "body.country", "body.currency",
				"body.lines[0].sku", "body.lines[0].quantity", "body.lines[0].unit_price", "body.lines[1].unit_price", "header.Idempotency-Key",
			},
		},
		{"good body, bad key", "POST", "/v1/orders", goodBody, []string{"Idempotency-Key", strings.Repeat("x", 256)}, 422, problemInvalid, []string{"header.Idempotency-Key"}},
		{"too large", "POST", "/v1/orders", `{"country":"` + long + `"}`, nil, 413, httpapi.TypeTooLarge, nil},
		{"a form", "POST", "/v1/orders", "country=EIRE", []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, httpapi.TypeMedia, nil},
		{"get: no id", "GET", "/v1/orders/nonsense", "", nil, 422, problemInvalid, []string{"path.id"}},
		{"cancel: no id", "POST", "/v1/orders/nonsense/cancel", "", nil, 422, problemInvalid, []string{"path.id"}},
		{
			"cancel: every field", "POST", "/v1/orders/" + id + "/cancel", `{"credit_note":true,"reason":"\u0000","at":1}`, nil, 422, problemInvalid,
			[]string{"body.credit_note", "body.at", "body.reason"},
		},
		{"cancel: too large", "POST", "/v1/orders/" + id + "/cancel", `{"reason":"` + long + `"}`, nil, 413, httpapi.TypeTooLarge, nil},
		{"update: nothing", "PATCH", "/v1/orders/" + id, "{}", nil, 422, problemInvalid, []string{"body"}},
		{
			"update: every field", "PATCH", "/v1/orders/" + id, `{"country":1,"address":{"name":"","street":"s","city":"c","zip":1},"lines":[],"total":"1"}`,
			[]string{"If-Match", "1"},
			422, problemInvalid,
			[]string{"body.country", "body.address.zip", "body.total", "body.address.name", "body.lines", "header.If-Match"},
		},
		{"update: null lines", "PATCH", "/v1/orders/" + id, `{"lines":null,"country":""}`, nil, 422, problemInvalid, []string{"body.lines"}},
		{"update: without If-Match", "PATCH", "/v1/orders/" + id, `{"country":"EIRE"}`, nil, 428, problemNeedsMatch, nil},
		{"ship: every field", "POST", "/v1/orders/" + id + "/ship", `{"carrier":1,"tracking":"\u0000","to":1}`, nil, 422, problemInvalid, []string{"body.carrier", "body.to", "body.tracking"}},
		{"confirm: a field", "POST", "/v1/orders/" + id + "/confirm", `{"by":1}`, nil, 422, problemInvalid, []string{"body.by"}},
		{"list: without a customer", "GET", "/v1/orders", "", nil, 422, problemInvalid, []string{"query.customer_id"}},
		{"list: bad times", "GET", "/v1/orders?customer_id=1&since=x&limit=101", "", nil, 422, problemInvalid, []string{"query.since", "query.limit"}},
		{"list: empty limit", "GET", "/v1/orders?customer_id=1&limit=", "", nil, 422, problemInvalid, []string{"query.limit"}},
		{"list: misspelt", "GET", "/v1/orders?customer_id=1&form=2026-01-01T00:00:00Z", "", nil, 422, problemInvalid, []string{"query.form"}},
		{"list: given twice", "GET", "/v1/orders?customer_id=1&customer_id=2", "", nil, 422, problemInvalid, []string{"query.customer_id"}},
		{"list: bad cursor", "GET", "/v1/orders?customer_id=1&cursor=AAAA", "", nil, 422, problemInvalid, []string{"query.cursor"}},
		{"method", "PUT", "/v1/orders", goodBody, nil, 405, httpapi.TypeMethod, nil},
		{"path", "GET", "/v2/orders", "", nil, 404, httpapi.TypeNoPath, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := world.Request(t, h, tt.method, tt.path, tt.body, tt.header...)
			r.MustBeProblem(t, tt.status, tt.typ)
			if got := r.Locations(); !slices.Equal(got, tt.locations) {
				t.Errorf("errors name %q, want %q", got, tt.locations)
			}
			if len(r.Text) > 4096 {
				t.Errorf("the answer has %d bytes: it echoes the request", len(r.Text))
			}
		})
	}
	if r := world.Request(t, h, "GET", "/v1/obx_secret", ""); r.Status != 404 || strings.Contains(r.Text, "secret") {
		t.Errorf("the response contains the unknown path: %s", r.Text)
	}
	if r := world.Request(t, h, "PUT", "/v1/orders", ""); r.Header.Get("Allow") != "GET, HEAD, POST" {
		t.Errorf("Allow = %q, want GET, HEAD, POST", r.Header.Get("Allow"))
	}
}

// An invalid key is rejected: its caller assumes that a retry is safe.
func TestHTTP_RefusesAKeyThatIsNone(t *testing.T) {
	t.Parallel()
	h := withoutDatabase(t)
	id := gocql.UUID{1}.String()
	for _, path := range []string{"/v1/orders", "/v1/orders/" + id + "/cancel", "/v1/orders/" + id + "/confirm", "/v1/orders/" + id + "/ship"} {
		for _, keys := range [][]string{{""}, {"a", "b"}, {"a", "a"}} {
			req := httptest.NewRequestWithContext(t.Context(), "POST", path, strings.NewReader("{}"))
			req.Host = "localhost"
			req.Header.Set("Content-Type", "application/json")
			req.Header["Idempotency-Key"] = keys
			w := httptest.NewRecorder()
			h.ServeHTTP(w, req)
			if w.Code != 422 || !strings.Contains(w.Body.String(), problemInvalid) || !strings.Contains(w.Body.String(), "header.Idempotency-Key") {
				t.Errorf("POST %s with the keys %q = %d %s", path, keys, w.Code, w.Body)
			}
		}
	}
}

func TestHTTP_OrderLifecycle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	h := newHandler(t, b.Service, apiserver.Config{})
	const trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

	created := world.Request(t, h, "POST", "/v1/orders", goodBody, "Idempotency-Key", "536365", "traceparent", trace)
	id, _ := created.Body["id"].(string)
	self := "/v1/orders/" + id
	if created.Status != 201 || created.Header.Get("Location") != self || created.Header.Get("ETag") != `"1"` ||
		created.Body["version"] != 1.0 || created.Body["total"] != "22.84" || created.Header.Get("Idempotency-Replayed") != "" {
		t.Fatalf("create = %d %v %s", created.Status, created.Header, created.Text)
	}
	if l, _ := created.Body["links"].(map[string]any); l["self"] != self || l["cancel"] != self+"/cancel" {
		t.Errorf("links = %v", l)
	}
	uuid, err := gocql.ParseUUID(id)
	if err != nil {
		t.Fatal(err)
	}
	if e := b.readStored(t, uuid).events[0]; e.Headers[outbox.HeaderTraceParent] != trace {
		t.Errorf("event headers = %v, want the trace", e.Headers)
	}

	again := world.Request(t, h, "POST", "/v1/orders", " "+goodBody, "Idempotency-Key", `"536365"`)
	if again.Status != 201 || again.Body["id"] != id || again.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("create again = %d %s", again.Status, again.Text)
	}
	world.Request(t, h, "POST", "/v1/orders", strings.Replace(goodBody, "GBP", "EUR", 1), "Idempotency-Key", "536365").
		MustBeProblem(t, 422, problemKeyReuse)

	if got := world.Request(t, h, "GET", self, ""); got.Status != 200 || got.Text != created.Text {
		t.Errorf("get = %d %s, want the response of create, %s", got.Status, got.Text, created.Text)
	}

	cancelled := world.Request(t, h, "POST", self+"/cancel", `{"credit_note":"C1"}`, "Idempotency-Key", "C1")
	if cancelled.Status != 200 || cancelled.Body["status"] != "cancelled" || cancelled.Header.Get("ETag") != `"2"` || cancelled.Body["credit_note"] != "C1" {
		t.Errorf("cancel = %d %s", cancelled.Status, cancelled.Text)
	}
	if again := world.Request(t, h, "POST", self+"/cancel", `{"credit_note":"C1"}`, "Idempotency-Key", "C1"); again.Status != 200 || again.Text != cancelled.Text {
		t.Errorf("cancel again = %d %s", again.Status, again.Text)
	}
	late := world.Request(t, h, "POST", "/v1/orders", goodBody, "Idempotency-Key", "536365")
	if late.Status != 201 || late.Text != created.Text || late.Header.Get("ETag") != `"1"` || late.Header.Get("Location") != self || late.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("create once more = %d %v %s, want the first response, %s", late.Status, late.Header, late.Text, created.Text)
	}
	conflict := world.Request(t, h, "POST", self+"/cancel", "")
	conflict.MustBeProblem(t, 409, problemCancelled)
	if conflict.Body["order_id"] != id {
		t.Errorf("conflict = %s, want the id of the order", conflict.Text)
	}
	b.mustBe(t, uuid, EventCreated, EventCancelled)

	nobody := gocql.UUID{1}.String()
	world.Request(t, h, "GET", "/v1/orders/"+nobody, "").MustBeProblem(t, 404, problemNotFound)
	world.Request(t, h, "POST", "/v1/orders/"+nobody+"/cancel", "").MustBeProblem(t, 404, problemNotFound)
}

func TestHTTP_DatabaseDown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	o := b.mustCreate(t)
	h := newHandler(t, b.brief(t), apiserver.Config{})
	for _, kind := range []engine.OpKind{engine.OpRead, engine.OpSerialRead, engine.OpWrite, engine.OpLoggedBatch, engine.OpCAS} {
		b.fault(kind, 0, faults.Effect{Failure: faults.Unavailable(0, 1)})
	}
	for _, r := range [][]string{
		{"POST", "/v1/orders", goodBody},
		{"POST", "/v1/orders", goodBody, "Idempotency-Key", "k"},
		{"GET", "/v1/orders/" + o.ID.String(), ""},
		{"POST", "/v1/orders/" + o.ID.String() + "/cancel", ""},
		{"GET", "/readyz", ""},
	} {
		got := world.Request(t, h, r[0], r[1], r[2], r[3:]...)
		got.MustBeProblem(t, 503, problemUnavailable)
		// 2 s or, after that many failures, the remaining time of the open breaker, at
		// most 5 s.
		if after, err := strconv.Atoi(got.Header.Get("Retry-After")); err != nil || after < 1 || after > 5 || got.Body["outcome_unknown"] != nil {
			t.Errorf("%s %s: %v %s, want Retry-After and nothing stored", r[0], r[1], got.Header, got.Text)
		}
	}
	if r := world.Request(t, h, "GET", "/livez", ""); r.Status != 200 {
		t.Errorf("livez = %d, want 200: the process is healthy", r.Status)
	}
	b.heal(t)
	b.mustBe(t, o.ID, EventCreated)
	if n := b.Session.Query("SELECT id FROM orders").Iter().NumRows(); n != 1 {
		t.Errorf("%d orders, want only the previous one", n)
	}
	if n := b.Session.Query("SELECT event_id FROM outbox_messages").Iter().NumRows(); n != 1 {
		t.Errorf("%d events, want only the previous one", n)
	}
	world.Eventually(t, "readyz reports that the database is back", func() bool { return world.Request(t, h, "GET", "/readyz", "").Status == 200 })
}

func TestHTTP_OutcomeUnknown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	h := newHandler(t, b.brief(t), apiserver.Config{})
	b.fault(engine.OpLoggedBatch, 0, faults.Effect{Failure: faults.WriteTimeout(faults.Batch, 0, 1)})
	for _, key := range [][]string{nil, {"Idempotency-Key", "k"}} {
		r := world.Request(t, h, "POST", "/v1/orders", goodBody, key...)
		r.MustBeProblem(t, 503, problemUnknown)
		id, _ := r.Body["order_id"].(string)
		l, _ := r.Body["links"].(map[string]any)
		if r.Header.Get("Retry-After") == "" || r.Body["outcome_unknown"] != true || l["self"] != "/v1/orders/"+id {
			t.Errorf("%v %s, want the order and a link to it", r.Header, r.Text)
		}
		if same := strings.Contains(fmt.Sprint(r.Body["detail"]), "Retry with the same Idempotency-Key"); same != (key != nil) {
			t.Errorf("key %q: detail %q", key, r.Body["detail"])
		}
	}
}

func TestHTTP_OpenAPI(t *testing.T) {
	t.Parallel()
	r := world.Request(t, withoutDatabase(t), "GET", "/openapi.json", "")
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			OperationID string
			Parameters  []struct{ Name, In string }
			RequestBody struct {
				Required bool
				Content  map[string]struct {
					Schema map[string]any
				}
			}
			Responses map[string]struct {
				Content map[string]any
			}
		}
		Components struct {
			Schemas map[string]struct {
				Required   []string
				Properties map[string]any
			}
		}
	}
	if err := json.Unmarshal([]byte(r.Text), &doc); err != nil || r.Status != 200 || !strings.HasPrefix(doc.OpenAPI, "3.1") {
		t.Fatalf("openapi = %d %q, %v", r.Status, doc.OpenAPI, err)
	}
	for _, tt := range []struct {
		path, method, id string
		parameters       []string
		body             string
		codes            []string
	}{
		{"/v1/orders", "post", "create-order", []string{"Idempotency-Key", "traceparent", "tracestate"}, "NewOrder", []string{"201", "400", "413", "415", "422", "503"}},
		{"/v1/orders/{id}", "get", "get-order", []string{"id", "If-None-Match"}, "", []string{"200", "404", "422", "503"}},
		{"/v1/orders/{id}/cancel", "post", "cancel-order", []string{"id", "Idempotency-Key", "traceparent", "tracestate", "If-Match"}, "Cancellation", []string{"200", "400", "404", "409", "412", "413", "415", "422", "503"}},
		{"/v1/orders/{id}/ship", "post", "ship-order", []string{"id", "Idempotency-Key", "traceparent", "tracestate", "If-Match"}, "Shipment", []string{"200", "409", "412"}},
		{"/v1/orders/{id}/confirm", "post", "confirm-order", []string{"id", "Idempotency-Key", "traceparent", "tracestate", "If-Match"}, "Confirmation", []string{"200", "409", "412"}},
		{"/v1/orders/{id}", "patch", "update-order", []string{"id", "Idempotency-Key", "traceparent", "tracestate", "If-Match"}, "Update", []string{"200", "400", "404", "409", "412", "413", "415", "422", "428", "503"}},
		{"/v1/orders", "get", "list-orders", []string{"customer_id", "since", "until", "limit", "cursor"}, "", []string{"200", "422", "503"}},
	} {
		op := doc.Paths[tt.path][tt.method]
		var names []string
		for _, p := range op.Parameters {
			names = append(names, p.Name)
		}
		if op.OperationID != tt.id || !slices.Equal(names, tt.parameters) {
			t.Errorf("%s %s: operation %q with parameters %q, want %q with %q", tt.method, tt.path, op.OperationID, names, tt.id, tt.parameters)
		}
		if tt.body != "" && op.RequestBody.Content["application/json"].Schema["$ref"] != "#/components/schemas/"+tt.body {
			t.Errorf("%s %s: body %v, want %s", tt.method, tt.path, op.RequestBody, tt.body)
		}
		for _, code := range tt.codes {
			content := "application/json"
			if code >= "400" {
				content = "application/problem+json"
			}
			if op.Responses[code].Content[content] == nil {
				t.Errorf("%s %s: no response %s as %s", tt.method, tt.path, code, content)
			}
		}
	}
	if got, want := doc.Components.Schemas["NewOrder"].Required, []string{"country", "currency", "lines"}; !slices.Equal(got, want) {
		t.Errorf("NewOrder requires %q, want %q", got, want)
	}
	if doc.Components.Schemas["Problem"].Properties["outcome_unknown"] == nil {
		t.Error("Problem lacks outcome_unknown")
	}
}

func TestHTTP_Metrics(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	s, err := New(nil, Config{Registerer: reg})
	if err != nil {
		t.Fatal(err)
	}
	h := newHandler(t, s, apiserver.Config{Registerer: reg})
	world.Request(t, h, "POST", "/v1/orders", "{}")
	r := world.Request(t, promhttp.HandlerFor(reg, promhttp.HandlerOpts{}), "GET", "/metrics", "")
	for _, want := range []string{
		`outbox_http_request_duration_seconds_count{api="orders",code="422",operation="create-order"} 1`,
		`outbox_orders_write_attempts_total{result="unknown",step="batch"} 0`,
		`outbox_orders_repairs_total{repaired="event"} 0`,
		`outbox_orders_unknown_outcomes_total 0`,
	} {
		if !strings.Contains(r.Text, want) {
			t.Errorf("metrics lack %q", want)
		}
	}
	if _, err := New(nil, Config{Registerer: reg}); err == nil {
		t.Error("two services registered the same metrics")
	}
}

func TestServer_DrainsOnStop(t *testing.T) {
	t.Parallel()
	b := setup(t)
	srv := newServer(t, b.Service, apiserver.Config{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx, l) }()

	// A request is in flight when the server stops.
	hits := b.fault(engine.OpLoggedBatch, 1, faults.Effect{Freeze: true})
	status := make(chan int, 1)
	go func() {
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+l.Addr().String()+"/v1/orders", strings.NewReader(goodBody))
		if err != nil {
			status <- 0
			return
		}
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			status <- 0
			return
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		status <- resp.StatusCode
	}()
	world.Eventually(t, "the request is under way", func() bool { return hits() > 0 })
	stop()
	world.Eventually(t, "the server drains", func() bool { return world.Request(t, srv.Handler(), "GET", "/readyz", "").Status == 503 })
	select {
	case err := <-served:
		t.Fatalf("Serve() = %v while a request is under way", err)
	default:
	}
	b.Node.Faults().Thaw()
	if err := <-served; err != nil {
		t.Errorf("Serve() = %v", err)
	}
	if got := <-status; got != 201 {
		t.Errorf("the request in flight got %d, want 201", got)
	}
	if r := world.Request(t, srv.Handler(), "GET", "/readyz", ""); r.Status != 503 {
		t.Errorf("readyz = %d after the stop, want 503", r.Status)
	}
}

func TestToProblem_HidesWhatItDoesNotKnow(t *testing.T) {
	t.Parallel()
	var p *problem
	if err := toProblem(errors.New("secret"), gocql.UUID{}, false); !errors.As(err, &p) || p.Status != 500 || strings.Contains(p.Detail, "secret") {
		t.Errorf("toProblem() = %+v", p)
	}
}
