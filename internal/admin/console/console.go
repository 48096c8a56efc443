// Package console is the web console for operators: static pages, embedded in the
// binary, that talk to the HTTP API beside them.
//
// It serves files and nothing else: no data, no session, no cookie. The pages
// authenticate to the API with a bearer token that lives in the browser tab, or with the
// session cookie of package access, which no script can read.
// docs/design/console.md explains how they are built and why they need no build step.
package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strings"
	"time"
)

//go:embed static
var embedded embed.FS

// Prefix is the path where the console must be served, because its files and links
// contain it.
const Prefix = "/console"

// policy lets the pages load what this handler serves, talk to their own origin,
// and nothing else: no inline script or style, no frame around them, and no
// assignment of text to anything that would parse it as HTML.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// types are the media types of the embedded files. The table of the system may be wrong
// or missing, and browsers refuse modules of another type.
var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
	".json": "application/json",
}

// Settings are the settings that the pages read. The zero value is usable.
type Settings struct {
	// TraceURL links the page of a dead letter to its trace: an http or https address with
	// {trace_id} and optionally {span_id}; empty disables the link. Check it with
	// ValidTraceURL first; Handler panics on an invalid one.
	TraceURL string `json:"trace_url,omitempty"`
	// Orders shows the pages of orders, for an API that has the operations of package orders
	// beside its own.
	Orders bool `json:"orders,omitempty"`
	// SignIn offers the sign-in at the issuer of this name, which the server must have at
	// /console/sign-in. Empty offers none.
	SignIn string `json:"sign_in,omitempty"`
}

// ValidTraceURL returns an error for an invalid template of TraceURL.
func ValidTraceURL(template string) error {
	if template == "" {
		return nil
	}
	u, err := url.Parse(strings.NewReplacer("{trace_id}", "0", "{span_id}", "0").Replace(template))
	if err != nil {
		return fmt.Errorf("trace address %q: %w", template, err)
	}
	if (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return fmt.Errorf("trace address %q: use http://… or https://…", template)
	}
	if !strings.Contains(template, "{trace_id}") {
		return fmt.Errorf("trace address %q: it needs {trace_id}", template)
	}
	return nil
}

// file is an embedded file with its headers.
type file struct {
	body        []byte
	contentType string
	etag        string
}

// Handler serves the console at Prefix and below, with GET and HEAD. A path that is not a
// file is a page and receives the document that draws it; the status is 404 if there is no
// such page, which the document then shows. Handler is safe for concurrent use.
func Handler(s Settings) http.Handler {
	if err := ValidTraceURL(s.TraceURL); err != nil {
		panic(err)
	}
	files := load(s)
	pages := compilePages(string(files["static/js/main.js"].body))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		serve(w, r, files, pages)
	})
}

// routed matches a call that maps a pattern to a page, and variable a part of the pattern; that of the name
// uuid stands for ids of the form uuid.
var (
	routed   = regexp.MustCompile(`(?m)^route\("([^"]*)"`)
	variable = regexp.MustCompile(`:\w+`)
)

const uuid = `[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}`

// compilePages returns an expression that matches the paths of the pages, below Prefix: the
// patterns that a script maps to pages. So they are in one place.
func compilePages(script string) *regexp.Regexp {
	var all []string
	for _, m := range routed.FindAllStringSubmatch(script, -1) {
		pattern := strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSuffix(m[1], "/")), ":uuid", uuid)
		all = append(all, variable.ReplaceAllString(pattern, `[^/]+`))
	}
	return regexp.MustCompile(`^(?:` + strings.Join(all, "|") + `)$`)
}

// load reads the embedded files once.
func load(s Settings) map[string]file {
	files := make(map[string]file)
	add := func(name string, body []byte) {
		sum := sha256.Sum256(body)
		files[name] = file{body, types[path.Ext(name)], `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`}
	}
	err := fs.WalkDir(embedded, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := embedded.ReadFile(name)
		if err == nil {
			add(name, body)
		}
		return err
	})
	if err != nil {
		panic(fmt.Sprintf("console: read the embedded files: %v", err)) // they are in the binary
	}
	conf, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("console: %v", err)) // a struct of strings
	}
	add("static/settings.json", conf)
	return files
}

func serve(w http.ResponseWriter, r *http.Request, files map[string]file, pages *regexp.Regexp) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "the console only serves pages", http.StatusMethodNotAllowed)
		return
	}
	name, ok := strings.CutPrefix(path.Clean(r.URL.Path), Prefix)
	if !ok || (name != "" && name[0] != '/') {
		http.NotFound(w, r)
		return
	}
	f, ok := files["static/index.html"], true
	if strings.HasPrefix(name, "/static/") {
		f, ok = files[name[1:]]
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	h.Set("Content-Type", f.contentType)
	h.Set("ETag", f.etag)
	// Browsers revalidate every request and receive 304, so a new binary is visible
	// immediately.
	h.Set("Cache-Control", "no-cache")
	if !strings.HasPrefix(name, "/static/") && !pages.MatchString(name) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write(f.body) // the client has disconnected
		return
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.body))
}
