package orders

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/danielgtaylor/huma/v2"
)

// A path that the description has is not the value of a parameter of another one.
func TestServer_APathOfItsOwnIsNoParameter(t *testing.T) {
	t.Parallel()
	nothing := func(context.Context, *struct{}) (*struct{}, error) { return nil, nil }
	s, err := NewServer(setup(t).Service, ServerConfig{Routes: []func(huma.API){func(h huma.API) {
		huma.Register(h, huma.Operation{OperationID: "a", Method: http.MethodGet, Path: "/v1/things/{id}"}, func(context.Context, *struct {
			ID string `path:"id"`
		},
		) (*struct{}, error) {
			return nil, nil
		})
		huma.Register(h, huma.Operation{OperationID: "b", Method: http.MethodPost, Path: "/v1/things/batch"}, nothing)
	}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		method, path string
		status       int
		allow        string
	}{
		{http.MethodGet, "/v1/things/1", 204, ""},
		{http.MethodPost, "/v1/things/batch", 204, ""},
		{http.MethodGet, "/v1/things/batch", 405, "POST"},
		{http.MethodOptions, "/v1/things/batch", 405, "POST"},
		{http.MethodPut, "/v1/things/1", 405, "GET, HEAD"},
	} {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), tt.method, "http://localhost"+tt.path, nil))
		if w.Code != tt.status || w.Header().Get("Allow") != tt.allow {
			t.Errorf("%s %s = %d, Allow %q; want %d, %q", tt.method, tt.path, w.Code, w.Header().Get("Allow"), tt.status, tt.allow)
		}
	}
}
