// Package apidocs serves the page /docs of every server: the API's description, which
// loads nothing from other servers.
package apidocs

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

// files are the page. Swagger UI is stored and sent compressed.
//
//go:embed page/index.html page/start.js page/swagger-ui-bundle.js.gz page/swagger-ui.css.gz page/LICENSE page/NOTICE
var files embed.FS

// policy allows the page to run its own scripts and to call its own service. Swagger UI
// sets inline styles and uses data URLs for icons.
const policy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Register serves the page at /docs and below, which shows /openapi.json of the same
// server. Other paths below /docs are passed to notFound.
func Register(mux *http.ServeMux, notFound http.Handler) {
	h := handler(notFound)
	mux.Handle("GET /docs", h)
	mux.Handle("GET /docs/", h)
}

func handler(notFound http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/docs"), "/")
		if name == "" {
			name = "index.html"
		}
		plain, err := files.ReadFile("page/" + name)
		packed, err2 := files.ReadFile("page/" + name + ".gz")
		if err != nil && err2 != nil || path.Ext(name) == ".gz" {
			notFound.ServeHTTP(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "max-age=3600")
		kind := mime.TypeByExtension(path.Ext(name))
		if kind == "" {
			kind = "text/plain; charset=utf-8"
		}
		h.Set("Content-Type", kind)
		if err == nil {
			_, _ = w.Write(plain) // a caller that closed the request misses nothing
			return
		}
		h.Set("Vary", "Accept-Encoding")
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			h.Set("Content-Encoding", "gzip")
			_, _ = w.Write(packed)
			return
		}
		if z, err := gzip.NewReader(bytes.NewReader(packed)); err == nil {
			_, _ = io.Copy(w, z) //nolint:gosec // these bytes are our own
		}
	}
}
