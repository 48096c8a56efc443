package app

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// fragile cannot be encoded.
type fragile struct{}

// MarshalJSON fails.
func (fragile) MarshalJSON() ([]byte, error) { return nil, errors.New("broken") }

// The detail of /readyz may be anything while a node of the database is down.
func TestAdminServer_ReadinessNamesNodesBesideAnyDetail(t *testing.T) {
	t.Parallel()
	stopping := httpapi.New(httpapi.TypeStopping, "It stops.")
	var none *struct{ A int }
	const nodes = `"database_nodes_down":["10.0.0.2"]`
	for name, tt := range map[string]struct {
		ready       bool
		detail      any
		code        int
		contentType string
		body        string
	}{
		"nothing":         {true, nil, 200, "application/json", `{` + nodes + `,"ready":true}`},
		"a nil pointer":   {true, none, 200, "application/json", `{` + nodes + `,"ready":true}`},
		"not ready":       {false, nil, 503, "application/json", `{` + nodes + `,"ready":false}`},
		"fields":          {true, struct{ Streams int64 }{1 << 60}, 200, "application/json", `{"Streams":1152921504606846976,` + nodes + `}`},
		"a list":          {true, []int{1, 2}, 200, "application/json", `{` + nodes + `,"detail":[1,2]}`},
		"a text":          {true, "fine", 200, "application/json", `{` + nodes + `,"detail":"fine"}`},
		"a number":        {false, 7, 503, "application/json", `{` + nodes + `,"detail":7}`},
		"a problem":       {false, &stopping, 503, "application/problem+json", `{` + nodes + `,"detail":"It stops.","status":503,"title":"Stopping","type":"` + httpapi.TypeStopping + `"}`},
		"an unencodable":  {true, fragile{}, 200, "application/json", `{"error":"encode the detail: json: error calling MarshalJSON for type app.withNodes: json: error calling MarshalJSON for type app.fragile: broken"}`},
		"nested nothing":  {true, map[string]any{"a": nil}, 200, "application/json", `{"a":null,` + nodes + `}`},
		"the same fields": {true, map[string]any{"database_nodes_down": 1}, 200, "application/json", `{` + nodes + `}`},
	} {
		mux := http.NewServeMux()
		httpapi.Probes(mux, func() (bool, any) { return tt.ready, nameNodes(tt.ready, tt.detail, []string{"10.0.0.2"}) })
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/readyz", http.NoBody))
		if got := w.Header().Get("Content-Type"); w.Code != tt.code || got != tt.contentType || w.Body.String() != tt.body+"\n" {
			t.Errorf("%s: %d %s %s, want %d %s %s", name, w.Code, got, w.Body, tt.code, tt.contentType, tt.body)
		}
	}
}

// A request to the ops listener whose handler panics is answered with 500, logged and counted.
func TestAdminServer_Panics(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	c := OpsConfig{Addr: "127.0.0.1:0"}
	s, err := c.serve(t.Context(), nil, prometheus.NewRegistry(), func() (bool, any) { panic("no map") }, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) (int, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr()+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	if code, _ := get("/readyz"); code != 500 {
		t.Errorf("/readyz = %d, want 500", code)
	}
	if _, text := get("/metrics"); !strings.Contains(text, "\noutbox_ops_listener_panics_total 1\n") {
		t.Errorf("the panic is not counted: %s", text)
	}
	if err := s.Shutdown(AdminShutdown); err != nil {
		t.Error(err)
	}
	if got := log.String(); !strings.Contains(got, "level=ERROR") || !strings.Contains(got, "path=/readyz err=\"no map\"") {
		t.Errorf("the log is %q, want the panic", got)
	}
}
