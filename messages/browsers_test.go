package messages

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/internal/access"
	"github.com/scylla-outbox/scylla-outbox/internal/apiserver"
	"github.com/scylla-outbox/scylla-outbox/internal/stream"
	"github.com/scylla-outbox/scylla-outbox/orders"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// apis are the APIs of orders and of messages with event streams, each of 9 operations.
func apis(t *testing.T) []apiserver.API {
	t.Helper()
	withStreams := NewAPI(withoutDatabase(t)).HTTP()
	withStreams.Routes = append(withStreams.Routes, must(stream.New(stream.Config{})).Register)
	return []apiserver.API{must(must(orders.New(nil, orders.Config{})).HTTP()), withStreams}
}

// A page of another origin cannot change anything on the servers of orders and
// messages: neither by requests that browsers allow across origins nor by DNS
// rebinding. There is no database, so an accepted request would be a 5xx.
func TestServer_NoPageElsewhereChangesAnything(t *testing.T) {
	t.Parallel()
	for _, api := range apis(t) {
		t.Run(api.Name, func(t *testing.T) { noPageElsewhere(t, api) })
	}
}

func noPageElsewhere(t *testing.T, api apiserver.API) {
	t.Parallel()
	srv := must(apiserver.New(api, apiserver.Config{}))
	var doc struct {
		Paths map[string]map[string]struct {
			OperationID string `json:"operationId"`
			RequestBody any    `json:"requestBody"`
			Responses   map[string]any
		}
	}
	if err := json.Unmarshal([]byte(world.Request(t, srv.Handler(), "GET", "/openapi.json", "").Text), &doc); err != nil {
		t.Fatal(err)
	}
	refused := func(method, path, typ string, status int, header ...string) {
		t.Helper()
		r := world.Request(t, srv.Handler(), method, path, "{}", header...)
		if r.Status != status || r.Body["type"] != "urn:scylla-outbox:problem:"+typ || r.Body["detail"] == "" {
			t.Errorf("%s %s with %q = %d %s, want %d %s", method, path, header, r.Status, r.Text, status, typ)
		}
	}
	seen := 0
	for path, methods := range doc.Paths {
		path = strings.ReplaceAll(path, "{id}", "01a2005c-395d-72e3-8401-994110828553")
		for method, op := range methods {
			if method = strings.ToUpper(method); method == http.MethodGet {
				continue
			}
			seen++
			refused(method, path, "cross-site-request", 403, "Sec-Fetch-Site", "cross-site")
			refused(method, path, "cross-site-request", 403, "Origin", "https://evil.example")
			for _, simple := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""} {
				refused(method, path, "unsupported-media-type", 415, "Content-Type", simple)
			}
			if op.Responses["403"] == nil || op.RequestBody != nil && op.Responses["415"] == nil {
				t.Errorf("%s does not describe the refusal", op.OperationID)
			}
		}
	}
	if seen < 4 {
		t.Errorf("%d operations change something", seen)
	}
	over := func(host string, allowed ...string) (int, string) {
		hosts := must(access.NewHosts("0.0.0.0:8080", allowed))
		srv := must(apiserver.New(api, apiserver.Config{Hosts: hosts}))
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/problems", nil)
		r.Host = host
		w := httptest.NewRecorder()
		srv.Handler().ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	if code, text := over("evil.example:8080"); code != 403 || !strings.Contains(text, "foreign-host") || !strings.Contains(text, "localhost") {
		t.Errorf("a request with a foreign host = %d %s, want a refusal", code, text)
	}
	for _, host := range []string{"localhost:8080", "127.0.0.1:8080", "[::1]:8080"} {
		if code, text := over(host); code != 200 {
			t.Errorf("a request to %s = %d %s", host, code, text)
		}
	}
	if code, _ := over("orders.example", "orders.example"); code != 200 {
		t.Errorf("a request by a configured name = %d", code)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
