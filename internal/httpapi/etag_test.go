package httpapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

func TestParseMatch(t *testing.T) {
	t.Parallel()
	for header, want := range map[string][]int64{
		"": nil, "*": nil, " * ": nil, `"1"`: {1}, `"1", "22"`: {1, 22}, `W/"1"`: {}, `"x","2"`: {2}, `"01"`: {}, `"-1"`: {}, `"0"`: {}, `"a,b" ,"3"`: {3}, `"99999999999999999999"`: {}, ETag(1 << 60): {1 << 60},
	} {
		m, ok := ParseMatch(header)
		if got := m.Versions(); !ok || !slices.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("ParseMatch(%q) = %v, %v, want %v", header, got, ok, want)
		}
		if m.Permits(2) != (want == nil || slices.Contains(want, 2)) {
			t.Errorf("ParseMatch(%q) permits version 2: %v", header, m.Permits(2))
		}
	}
	for _, header := range []string{"1", `"1`, `"1""2"`, `"1",`, `*,"1"`, "w/\"1\"", strings.Repeat(`"1",`, maxMatch) + `"1"`} {
		if m, ok := ParseMatch(header); ok {
			t.Errorf("ParseMatch(%q) = %v, want an error", header, m)
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
		{"GET", "/versioned", `3`, "200 body text/plain"},
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
