package access

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"regexp"

	"github.com/scylla-outbox/scylla-outbox/internal/trace"
)

// RequestIDHeader carries the id of a request.
const RequestIDHeader = "X-Request-Id"

var requestIDForm = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,64}$`)

// WithRequestIDs gives each request an id, or keeps the one that it came with,
// and says it in the answer. What is logged with the request's context through
// trace.Handler says it too, and the id of the trace that the request belongs to.
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

// RequestIDOf is the id of a request; empty without WithRequestIDs.
func RequestIDOf(ctx context.Context) string { return trace.RequestID(ctx) }

// WithSecureHeaders keeps browsers from running, framing, guessing at or keeping
// an answer. A handler with pages of its own sets its own Content-Security-Policy
// and Cache-Control.
func WithSecureHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		h.Set("Cache-Control", "no-store")
		if r.TLS != nil {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		next.ServeHTTP(w, r)
	})
}
