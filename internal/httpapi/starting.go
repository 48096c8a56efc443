package httpapi

import (
	"fmt"
	"net/http"
	"time"
)

// startingRetry is the Retry-After of a starting service: less than the start of a
// database takes.
const startingRetry = 2 * time.Second

// Starting responds for an API whose database is not reached yet: to /healthz with 200,
// to /readyz with 503 and the result of why, and to all other requests with 503.
func Starting(why func() string) http.Handler {
	refuse := func(detail func() string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			p := New(http.StatusServiceUnavailable, TypeUnavailable, detail())
			p.RetryAfter(startingRetry)
			Write(w, &p)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintln(w, `{"status":"ok"}`)
	})
	mux.Handle("GET /readyz", refuse(why))
	mux.Handle("/", refuse(func() string {
		return "The service is starting and has not reached its database yet. Nothing was changed; retry later."
	}))
	return mux
}
