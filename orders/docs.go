package orders

import (
	"bytes"
	"compress/gzip"
	"embed"
	"io"
	"mime"
	"net/http"
	"path"
	"strings"
)

// docsFiles are the page at /docs; it loads nothing from elsewhere. Swagger UI
// lies here compressed, as it is sent.
//
//go:embed docs/index.html docs/start.js docs/swagger-ui-bundle.js.gz docs/swagger-ui.css.gz docs/LICENSE docs/NOTICE
var docsFiles embed.FS

// docsPolicy lets the page run its own scripts and ask its own service. Swagger UI
// writes styles into its elements and draws its icons from data.
const docsPolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// docs answers below /docs.
func docs(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/docs"), "/")
	if name == "" {
		name = "index.html"
	}
	h := w.Header()
	h.Set("Content-Security-Policy", docsPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "max-age=3600")
	kind := mime.TypeByExtension(path.Ext(name))
	if kind == "" {
		kind = "text/plain; charset=utf-8"
	}
	if b, err := docsFiles.ReadFile("docs/" + name); err == nil && path.Ext(name) != ".gz" {
		h.Set("Content-Type", kind)
		_, _ = w.Write(b) // a caller that hung up misses nothing
		return
	}
	b, err := docsFiles.ReadFile("docs/" + name + ".gz")
	if err != nil {
		writeProblem(w, newProblem(http.StatusNotFound, problemNoPath, "There is no such page; /docs is one."))
		return
	}
	h.Set("Content-Type", kind)
	h.Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		_, _ = w.Write(b)
		return
	}
	if z, err := gzip.NewReader(bytes.NewReader(b)); err == nil {
		_, _ = io.Copy(w, z) //nolint:gosec // these bytes are our own
	}
}
