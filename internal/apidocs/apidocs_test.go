package apidocs

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

func request(t *testing.T, path, encoding string) *httptest.ResponseRecorder {
	t.Helper()
	mux := http.NewServeMux()
	Register(mux, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) }))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	if encoding != "" {
		r.Header.Set("Accept-Encoding", encoding)
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	return w
}

func TestRegister(t *testing.T) {
	t.Parallel()
	for path, tt := range map[string]struct {
		code int
		kind string
		text string
	}{
		"/docs":                         {200, "text/html", "<html"},
		"/docs/":                        {200, "text/html", "<html"},
		"/docs/index.html":              {200, "text/html", "<html"},
		"/docs/start.js":                {200, "text/javascript", "/openapi.json"},
		"/docs/swagger-ui.css":          {200, "text/css", ".swagger-ui"},
		"/docs/swagger-ui-bundle.js":    {200, "text/javascript", "SwaggerUIBundle"},
		"/docs/LICENSE":                 {200, "text/plain", "Apache License"},
		"/docs/NOTICE":                  {200, "text/plain", "wagger"},
		"/docs/swagger-ui.css.gz":       {code: 404},
		"/docs/swagger-ui-bundle.js.gz": {code: 404},
		"/docs/nothing.js":              {code: 404},
		"/docs/page":                    {code: 404},
		"/docs/%2e%2e/apidocs.go":       {code: 404},
	} {
		w := request(t, path, "")
		if w.Code != tt.code {
			t.Errorf("GET %s = %d, want %d", path, w.Code, tt.code)
		}
		if tt.code != http.StatusOK {
			continue
		}
		h := w.Header()
		if !strings.HasPrefix(h.Get("Content-Type"), tt.kind) || !strings.Contains(w.Body.String(), tt.text) {
			t.Errorf("GET %s has the type %q and %d bytes, want %s with %q", path, h.Get("Content-Type"), w.Body.Len(), tt.kind, tt.text)
		}
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Referrer-Policy") != "no-referrer" {
			t.Errorf("GET %s has the headers %v", path, h)
		}
		csp := h.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self';", "connect-src 'self'", "frame-ancestors 'none'", "form-action 'none'"} {
			if !strings.Contains(csp, want) {
				t.Errorf("GET %s has the policy %q without %s", path, csp, want)
			}
		}
	}
}

// A client that accepts gzip gets the compressed file; caches keep both apart.
func TestRegister_Compressed(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/docs/swagger-ui.css", "/docs/swagger-ui-bundle.js"} {
		plain := request(t, path, "identity")
		packed := request(t, path, "br, gzip")
		if plain.Header().Get("Content-Encoding") != "" || packed.Header().Get("Content-Encoding") != "gzip" {
			t.Errorf("%s has the encodings %q and %q", path, plain.Header().Get("Content-Encoding"), packed.Header().Get("Content-Encoding"))
		}
		for _, w := range []*httptest.ResponseRecorder{plain, packed} {
			if w.Header().Get("Vary") != "Accept-Encoding" {
				t.Errorf("%s varies by %q", path, w.Header().Get("Vary"))
			}
		}
		if packed.Body.Len() >= plain.Body.Len() {
			t.Errorf("%s has %d bytes compressed and %d plain", path, packed.Body.Len(), plain.Body.Len())
		}
		z, err := gzip.NewReader(packed.Body)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(z)
		if err != nil || !bytes.Equal(text, plain.Body.Bytes()) {
			t.Errorf("%s is another file when it is compressed (%v)", path, err)
		}
	}
}

// The page loads nothing from other servers, and nothing that is not there; it has no
// inline scripts, which its policy forbids.
func TestPage_LoadsOnlyItsOwnFiles(t *testing.T) {
	t.Parallel()
	page := request(t, "/docs", "").Body.String()
	links := regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(page, -1)
	loaded := 0
	for _, l := range links {
		if strings.HasPrefix(l[1], "data:") || l[1] == "/openapi.json" { // the service has that one
			continue
		}
		loaded++
		if strings.Contains(l[1], "//") {
			t.Errorf("the page loads %s from elsewhere", l[1])
			continue
		}
		if w := request(t, "/docs/"+strings.TrimPrefix(strings.TrimPrefix(l[1], "/"), "docs/"), ""); w.Code != http.StatusOK {
			t.Errorf("the page loads %s: status %d", l[1], w.Code)
		}
	}
	if loaded < 3 {
		t.Errorf("the page loads %d files, want its script, Swagger UI and its style", loaded)
	}
	if m := regexp.MustCompile(`<script[^>]*>\s*[^<\s]`).FindString(page); m != "" {
		t.Errorf("the page has an inline script: %s", m)
	}
}
