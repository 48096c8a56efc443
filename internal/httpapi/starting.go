package httpapi

import (
	"fmt"
	"net/http"
	"time"
)

// startingRetry is when callers are asked to come again: in less time than a database
// takes that begins beside the service.
const startingRetry = 2 * time.Second

// Starting answers for an API whose database is not there yet: /healthz with 200,
// /readyz with 503 and why, as why tells it then, and all else with a 503 that
// nothing was done.
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
		return "The service is starting, and its database is not reached yet. Nothing was done; ask again later."
	}))
	return mux
}
