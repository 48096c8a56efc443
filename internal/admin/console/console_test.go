package console

import (
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"testing"
)

func get(t *testing.T, h http.Handler, method, target string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestHandler_Paths(t *testing.T) {
	t.Parallel()
	h := Handler(Settings{})
	for _, c := range []struct {
		method, target string
		status         int
		contentType    string
	}{
		{"GET", "/console", 200, "text/html; charset=utf-8"},
		{"GET", "/console/", 200, "text/html; charset=utf-8"},
		{"HEAD", "/console/dead-letters?status=open", 200, "text/html; charset=utf-8"},
		{"GET", "/console/dead-letters/01a1fdab-a873-7804-8159-8f6ba00d992c/edit", 200, "text/html; charset=utf-8"},
		{"GET", "/console/dead-letters/", 200, "text/html; charset=utf-8"},
		{"GET", "/console/subscriptions/a%20b", 200, "text/html; charset=utf-8"},
		{"GET", "/console/dead-letter", 404, "text/html; charset=utf-8"},
		{"GET", "/console/dead-letters/1/2", 404, "text/html; charset=utf-8"},
		{"GET", "/console/groups/x", 404, "text/html; charset=utf-8"},
		{"GET", "/console/dead-letters/groups", 404, "text/html; charset=utf-8"},
		{"GET", "/console/dead-letters/0199f3c1-6f2e-7bb1-a3d7-2f6f0c1d9e10", 200, "text/html; charset=utf-8"},
		{"HEAD", "/console/nothing?status=open", 404, "text/html; charset=utf-8"},
		{"GET", "/console/static/js/main.js", 200, "text/javascript; charset=utf-8"},
		{"GET", "/console/static/css/palette.css", 200, "text/css; charset=utf-8"},
		{"GET", "/console/static/icon.svg", 200, "image/svg+xml"},
		{"GET", "/console/static/settings.json", 200, "application/json"},
		{"GET", "/console/static/js/none.js", 404, ""},
		{"GET", "/console/static/../../console.go", 404, ""},
		{"GET", "/console/static/js", 404, ""},
		{"GET", "/consoles", 404, ""},
		{"GET", "/v1/dead-letters", 404, ""},
		{"POST", "/console/", 405, ""},
		{"DELETE", "/console/static/js/main.js", 405, ""},
	} {
		r := get(t, h, c.method, c.target)
		if r.StatusCode != c.status || (c.contentType != "" && r.Header.Get("Content-Type") != c.contentType) {
			t.Errorf("%s %s = %d %q, want %d %q", c.method, c.target, r.StatusCode, r.Header.Get("Content-Type"), c.status, c.contentType)
		}
		for _, name := range []string{"Content-Security-Policy", "X-Content-Type-Options", "X-Frame-Options", "Referrer-Policy"} {
			if r.Header.Get(name) == "" {
				t.Errorf("%s %s has no %s", c.method, c.target, name)
			}
		}
		if r.Header.Get("Set-Cookie") != "" {
			t.Errorf("%s %s sets a cookie", c.method, c.target)
		}
	}
}

func TestHandler_Unchanged(t *testing.T) {
	t.Parallel()
	h := Handler(Settings{})
	tag := get(t, h, "GET", "/console/static/js/main.js").Header.Get("ETag")
	if r := get(t, h, "GET", "/console/static/js/main.js", "If-None-Match", tag); r.StatusCode != http.StatusNotModified {
		t.Errorf("with If-None-Match: %s the status is %d, want 304", tag, r.StatusCode)
	}
	other := Handler(Settings{TraceURL: "https://traces.example/{trace_id}"})
	if a, b := get(t, h, "GET", "/console/static/settings.json"), get(t, other, "GET", "/console/static/settings.json"); a.Header.Get("ETag") == b.Header.Get("ETag") {
		t.Error("other settings have the same ETag: a browser would keep the old ones")
	}
}

func TestHandler_TraceURL(t *testing.T) {
	t.Parallel()
	if got, want := body(t, get(t, Handler(Settings{TraceURL: "https://traces.example/{trace_id}"}), "GET", "/console/static/settings.json")), `{"trace_url":"https://traces.example/{trace_id}"}`; got != want {
		t.Errorf("settings = %s, want %s", got, want)
	}
	for _, bad := range []string{"traces.example/{trace_id}", "javascript:alert('{trace_id}')", "https://traces.example/", "https:///{trace_id}", "%zz{trace_id}"} {
		if err := ValidTraceURL(bad); err == nil {
			t.Errorf("ValidTraceURL(%q) = nil, want an error", bad)
		}
	}
	for _, good := range []string{"", "http://localhost:16686/trace/{trace_id}?uiFind={span_id}"} {
		if err := ValidTraceURL(good); err != nil {
			t.Errorf("ValidTraceURL(%q) error = %v, want none", good, err)
		}
	}
}

// sources returns the embedded files of a kind by name.
func sources(t *testing.T, ext string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	err := fs.WalkDir(embedded, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path.Ext(name) != ext {
			return err
		}
		b, err := embedded.ReadFile(name)
		out[name] = string(b)
		return err
	})
	if err != nil || len(out) == 0 {
		t.Fatalf("no %s is embedded (%v)", ext, err)
	}
	return out
}

// unsafe are the APIs that turn text into markup or code. The content security policy
// forbids them too.
var unsafe = regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|srcdoc|createContextualFragment|setHTML|javascript:`)

// elsewhere matches an address of another machine.
var elsewhere = regexp.MustCompile(`(?:https?:)?//[a-z0-9-]+\.[a-z]`)

func TestStatic_SafeAndSelfContained(t *testing.T) {
	t.Parallel()
	for name, text := range sources(t, ".js") {
		if m := unsafe.FindString(text); m != "" {
			t.Errorf("%s uses %s: make elements and text nodes, by h()", name, m)
		}
		if m := elsewhere.FindString(strings.ReplaceAll(text, "http://www.w3.org/2000/svg", "")); m != "" {
			t.Errorf("%s names %s: the console works without internet", name, m)
		}
	}
	for name, text := range sources(t, ".css") {
		if strings.Contains(text, "@import") || strings.Contains(text, "url(") {
			t.Errorf("%s loads something: it must stand alone", name)
		}
	}
	page := sources(t, ".html")["static/index.html"]
	if m := regexp.MustCompile(`<style|\sstyle=|\son[a-z]+=|<script(?:\s+type="module")?>`).FindString(page); m != "" {
		t.Errorf("index.html has %q, which the policy forbids", m)
	}
}

// browserClock matches uses of the browser's clock, which may be wrong.
var browserClock = regexp.MustCompile(`Date\.now\b|new Date\(\)|\bDate\(\)`)

// Times on the pages come from the server's clock: time.js alone reads the browser's.
func TestStatic_OneClock(t *testing.T) {
	t.Parallel()
	for name, text := range sources(t, ".js") {
		if m := browserClock.FindString(text); m != "" && path.Base(name) != "time.js" {
			t.Errorf("%s uses %s, the browser's clock: use serverTime or elapsed of time.js", name, m)
		}
	}
}

var (
	imported   = regexp.MustCompile(`(?m)^import (?:.* from )?"(\.[^"]+)";`)
	referenced = regexp.MustCompile(`(?:src|href)="/console/(static/[^"]+)"`)
)

// Every file is used, and every imported file exists; a wrong import is a blank page.
func TestStatic_Reachable(t *testing.T) {
	t.Parallel()
	js := sources(t, ".js")
	seen := make(map[string]bool)
	var visit func(string)
	visit = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		for _, m := range imported.FindAllStringSubmatch(js[name], -1) {
			to := path.Join(path.Dir(name), m[1])
			if _, ok := js[to]; !ok {
				t.Errorf("%s imports %s, which does not exist", name, m[1])
				continue
			}
			visit(to)
		}
	}
	for _, m := range referenced.FindAllStringSubmatch(sources(t, ".html")["static/index.html"], -1) {
		if _, err := embedded.ReadFile(m[1]); err != nil {
			t.Errorf("index.html names %s: %v", m[1], err)
		}
		visit(m[1])
	}
	for _, ext := range []string{".js", ".css"} {
		for name := range sources(t, ext) {
			if !seen[name] {
				t.Errorf("%s is embedded and nothing uses it", name)
			}
		}
	}
}
