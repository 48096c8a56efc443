package httpapi

import (
	"log/slog"
	"net/http"
	"runtime/debug"
)

// Recovering calls fail, which responds with 500, if next panics, and logs the panic with its
// stack. net/http alone would close the connection without a response. A panic with
// http.ErrAbortHandler passes, by its contract.
func Recovering(next http.Handler, log *slog.Logger, fail http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if v == http.ErrAbortHandler { //nolint:errorlint // it is the value itself, by its contract
				panic(v)
			}
			log.ErrorContext(r.Context(), "request panicked", "path", r.URL.Path, "err", v, "stack", string(debug.Stack()))
			fail(w, r)
		}()
		next.ServeHTTP(w, r)
	})
}

// internal responds with the problem of a defect.
func internal(w http.ResponseWriter, _ *http.Request) {
	p := New(TypeInternal, "Internal error; see the log.")
	Write(w, &p)
}
