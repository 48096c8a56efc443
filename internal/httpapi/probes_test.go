package httpapi

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// /livez is 200 whatever the readiness; /readyz has the status and the detail of it.
func TestProbes(t *testing.T) {
	t.Parallel()
	stopping := New(TypeStopping, "It stops.")
	for _, tt := range []struct {
		name        string
		ready       bool
		detail      any
		code        int
		contentType string
		body        string
	}{
		{"ready", true, map[string]int{"streams": 7}, 200, "application/json", `{"streams":7}`},
		{"without a detail", true, nil, 200, "application/json", `{"status":"ready"}`},
		{"a detail that cannot be encoded", true, map[string]any{"f": make(chan int)}, 200, "application/json", `{"error":"encode the detail: json: unsupported type: chan int"}`},
		{"not ready", false, map[string]string{"breaker": "open"}, 503, "application/json", `{"breaker":"open"}`},
		{"a problem", false, &stopping, 503, "application/problem+json", `{"type":"` + TypeStopping + `","title":"Stopping","status":503,"detail":"It stops."}`},
	} {
		mux := http.NewServeMux()
		Probes(mux, func() (bool, any) { return tt.ready, tt.detail })
		for path, want := range map[string]struct {
			code              int
			contentType, body string
		}{
			"/livez":  {200, "application/json", `{"status":"ok"}`},
			"/readyz": {tt.code, tt.contentType, tt.body},
		} {
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			if got := w.Header().Get("Content-Type"); w.Code != want.code || got != want.contentType || w.Body.String() != want.body+"\n" {
				t.Errorf("%s: GET %s = %d %s %s, want %d %s %s", tt.name, path, w.Code, got, w.Body, want.code, want.contentType, want.body)
			}
		}
	}
}
