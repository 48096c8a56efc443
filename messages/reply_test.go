package messages

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/gocql/gocql"
)

// reply is a response in a test.
type reply struct {
	status int
	header http.Header
	body   map[string]any
	text   string
}

func request(t testing.TB, h http.Handler, method, path, body string, header ...string) reply {
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
	out := reply{status: w.Code, header: w.Result().Header, text: w.Body.String()}
	if strings.Contains(out.header.Get("Content-Type"), "json") {
		if err := json.Unmarshal(w.Body.Bytes(), &out.body); err != nil {
			t.Fatalf("%s %s: body %q: %v", method, path, out.text, err)
		}
	}
	return out
}

func (r reply) id(t testing.TB) gocql.UUID {
	t.Helper()
	id, err := gocql.ParseUUID(fmt.Sprint(r.body["id"]))
	if err != nil {
		t.Fatalf("reply %d %s has no id", r.status, r.text)
	}
	return id
}

// locations returns the locations of the problem's errors.
func (r reply) locations() []string {
	var out []string
	list, _ := r.body["errors"].([]any)
	for _, e := range list {
		m, _ := e.(map[string]any)
		out = append(out, fmt.Sprint(m["location"]))
	}
	slices.Sort(out)
	return slices.Compact(out)
}
