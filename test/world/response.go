package world

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gocql/gocql"
)

// Response is a response to Request.
type Response struct {
	Status int
	Header http.Header
	// Body is the decoded body if it is JSON.
	Body map[string]any
	Text string
}

// Request sends a request with a JSON body, unless that is empty, and pairs of
// headers to h.
func Request(t testing.TB, h http.Handler, method, path, body string, header ...string) Response {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	r.Host = "localhost"
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	out := Response{Status: w.Code, Header: w.Result().Header, Text: w.Body.String()}
	if strings.Contains(out.Header.Get("Content-Type"), "json") {
		if err := json.Unmarshal(w.Body.Bytes(), &out.Body); err != nil {
			t.Fatalf("%s %s: body %q: %v", method, path, out.Text, err)
		}
	}
	return out
}

// MustBeProblem checks the common fields of a problem document, and its type
// unless typ is empty. The title is the name of the type as words.
func (r Response) MustBeProblem(t testing.TB, status int, typ string) {
	t.Helper()
	kind, _ := r.Body["type"].(string)
	title, _ := r.Body["title"].(string)
	words := strings.ReplaceAll(kind[strings.LastIndexByte(kind, ':')+1:], "-", " ")
	if r.Status != status || r.Header.Get("Content-Type") != "application/problem+json" || r.Body["status"] != float64(status) ||
		!strings.EqualFold(title, words) || r.Body["detail"] == "" || typ != "" && r.Body["type"] != typ {
		t.Errorf("response %d %v %s, want a problem %d %s", r.Status, r.Header, r.Text, status, typ)
	}
}

// ID returns the id in the body.
func (r Response) ID(t testing.TB) gocql.UUID {
	t.Helper()
	id, err := gocql.ParseUUID(fmt.Sprint(r.Body["id"]))
	if err != nil {
		t.Fatalf("response %d %s has no id", r.Status, r.Text)
	}
	return id
}

// Locations returns the locations of the problem's errors.
func (r Response) Locations() []string {
	var out []string
	list, _ := r.Body["errors"].([]any)
	for _, e := range list {
		m, _ := e.(map[string]any)
		out = append(out, fmt.Sprint(m["location"]))
	}
	return out
}
