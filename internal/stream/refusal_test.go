package stream

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/coder/websocket"
	"github.com/danielgtaylor/huma/v2"
)

// Every refusal of the library is a problem document, as described.
func TestSocket_RefusalsAreProblems(t *testing.T) {
	t.Parallel()
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, err := websocket.Accept(&refusal{ResponseWriter: w}, r, nil); err == nil {
			_ = c.CloseNow()
		}
	})
	upgrade := map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
	for name, tt := range map[string]struct {
		header map[string]string
		status int
		typ    string
	}{
		"no upgrade":     {map[string]string{"Connection": ""}, http.StatusUpgradeRequired, problemUpgrade},
		"another origin": {map[string]string{"Origin": "https://elsewhere.example"}, http.StatusForbidden, problemCrossSite},
		"another key":    {map[string]string{"Sec-WebSocket-Key": "x"}, http.StatusBadRequest, problemHandshake},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/events/ws", nil)
		for _, header := range []map[string]string{upgrade, tt.header} {
			for k, v := range header {
				r.Header.Set(k, v)
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var p huma.ErrorModel
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != tt.status || p.Status != tt.status || p.Type != tt.typ || p.Detail == "" ||
			w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s %s, %v; want %s", name, w.Code, w.Header().Get("Content-Type"), w.Body, err, tt.typ)
		}
	}
}
