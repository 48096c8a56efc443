package access

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"maps"
	"net/http"
	"regexp"

	"github.com/scylla-outbox/scylla-outbox/internal/trace"
)

// RequestIDHeader carries the id of a request.
const RequestIDHeader = "X-Request-Id"

var requestIDForm = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,64}$`)

// WithRequestIDs keeps the id of each request or generates one, and returns it in the
// response. Records that are logged with the request's context through trace.Handler
// contain it and the trace id of the request.
func WithRequestIDs(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get(RequestIDHeader)
		if !requestIDForm.MatchString(id) {
			b := make([]byte, 12)
			_, _ = rand.Read(b) // never fails
			id = base64.RawURLEncoding.EncodeToString(b)
		}
		w.Header().Set(RequestIDHeader, id)
		next.ServeHTTP(w, r.WithContext(trace.With(r.Context(), id, r.Header.Get("Traceparent"))))
	})
}

// RequestIDOf returns the id of a request; empty without WithRequestIDs.
func RequestIDOf(ctx context.Context) string { return trace.RequestID(ctx) }

// secureHeaders are the headers of every response. Requests share the values, which nothing
// changes: a handler replaces them.
var secureHeaders = http.Header{
	"Content-Security-Policy":      {"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"},
	"X-Content-Type-Options":       {"nosniff"},
	"X-Frame-Options":              {"DENY"},
	"Referrer-Policy":              {"no-referrer"},
	"Cross-Origin-Opener-Policy":   {"same-origin"},
	"Cross-Origin-Resource-Policy": {"same-origin"},
	"Permissions-Policy":           {"camera=(), geolocation=(), microphone=()"},
	"Cache-Control":                {"no-store"},
}

// WithSecureHeaders prevents browsers from executing, framing, sniffing or caching
// responses. A handler with pages sets its own Content-Security-Policy and Cache-Control.
func WithSecureHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		maps.Copy(h, secureHeaders)
		if r.TLS != nil {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		next.ServeHTTP(w, r)
	})
}
