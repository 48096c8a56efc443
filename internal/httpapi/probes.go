package httpapi

import (
	"encoding/json"
	"net/http"
)

// Readiness reports whether a process, or a server of it, does its work, and a detail that
// is shown as JSON either way. A detail that embeds Problem is served as a problem, nil as the
// status alone, and one that cannot be encoded as the error of that.
type Readiness func() (ready bool, detail any)

// Probes adds the health checks of a server to mux: GET /livez returns 200 while the process
// runs, GET /readyz 200 or 503 with the detail. Ops listeners and APIs have the same.
func Probes(mux *http.ServeMux, ready Readiness) {
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, statusBody{"ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		ok, detail := ready()
		p, isProblem := detail.(problem)
		switch {
		case isProblem && !ok:
			Write(w, p)
		case !ok:
			writeJSON(w, http.StatusServiceUnavailable, detail)
		case detail == nil:
			writeJSON(w, http.StatusOK, statusBody{"ready"})
		default:
			writeJSON(w, http.StatusOK, detail)
		}
	})
}

// statusBody is the body of a check without a detail.
type statusBody struct {
	Status string `json:"status"`
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		body, _ = json.Marshal(map[string]string{"error": "encode the detail: " + err.Error()})
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a caller that closed the request misses nothing
}
