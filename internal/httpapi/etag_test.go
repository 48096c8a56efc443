package httpapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestParseIfMatch(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]int64{"": 0, "*": 0, `"1"`: 1, ETag(1 << 60): 1 << 60} {
		if got, ok := ParseIfMatch(header); got != want || !ok {
			t.Errorf("ParseIfMatch(%q) = %d, %v, want %d", header, got, ok, want)
		}
	}
	for _, header := range []string{"1", `"1`, `"0"`, `"-1"`, `"01"`, `"1","2"`, `W/"1"`, `"x"`, `"99999999999999999999"`} {
		if got, ok := ParseIfMatch(header); ok {
			t.Errorf("ParseIfMatch(%q) = %d, want an error", header, got)
		}
	}
}

func TestNotModified(t *testing.T) {
	t.Parallel()
	h := NotModified(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/versioned" || r.URL.Path == "/refused" {
			w.Header().Set("ETag", ETag(3))
		}
		if r.URL.Path == "/refused" {
			w.WriteHeader(http.StatusConflict)
		}
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprint(w, "body")
	}))
	for _, tt := range []struct {
		method, path, tags, want string
	}{
		{"GET", "/versioned", "", "200 body text/plain"},
		{"GET", "/versioned", `"3"`, "304  "},
		{"GET", "/versioned", `"2", W/"3"`, "304  "},
		{"GET", "/versioned", "*", "304  "},
		{"HEAD", "/versioned", `"3"`, "304  "},
		{"GET", "/versioned", `"33"`, "200 body text/plain"},
		{"POST", "/versioned", `"3"`, "200 body text/plain"},
		{"GET", "/unversioned", "*", "200 body text/plain"},
		{"GET", "/refused", `"3"`, "409 body text/plain"},
	} {
		r := httptest.NewRequestWithContext(t.Context(), tt.method, tt.path, nil)
		if tt.tags != "" {
			r.Header.Set("If-None-Match", tt.tags)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if got := fmt.Sprintf("%d %s %s", w.Code, w.Body, w.Header().Get("Content-Type")); got != tt.want {
			t.Errorf("%s %s with %s = %q, want %q", tt.method, tt.path, tt.tags, got, tt.want)
		}
	}
}
