package httpapi

import (
	"net/http"
	"time"
)

// startingRetry is the Retry-After of a starting service: less than the start of a
// database takes.
const startingRetry = 2 * time.Second

// Starting responds for an API whose database is not reached yet: to /livez with 200, to
// /readyz with 503 and the result of why, and to all other requests with 503.
func Starting(why func() string) http.Handler {
	unavailable := func(detail string) *Problem {
		p := New(TypeUnavailable, detail)
		p.RetryAfter(startingRetry)
		return &p
	}
	mux := http.NewServeMux()
	Probes(mux, func() (bool, any) { return false, unavailable(why()) })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		Write(w, unavailable("The service is starting and has not reached its database yet. Nothing was changed; retry later."))
	})
	return mux
}
