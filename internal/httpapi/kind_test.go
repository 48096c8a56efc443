package httpapi

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
)

// A type has one entry, and so one status and one title, which no other type has.
func TestCatalogue(t *testing.T) {
	t.Parallel()
	types, titles := map[string]bool{}, map[string]bool{}
	for _, k := range catalogue {
		title := Title(k.Type)
		if types[k.Type] || titles[title] {
			t.Errorf("%s, %q, is there twice", k.Type, title)
		}
		types[k.Type], titles[title] = true, true
		if http.StatusText(k.Status) == "" || k.Status < 400 || k.Meaning == "" || k.Do == "" {
			t.Errorf("%+v is not whole", k)
		}
		if p := New(k.Type, "d"); p.Status != k.Status || p.Title != title || p.Type != k.Type || p.Detail != "d" {
			t.Errorf("a problem of %+v is %+v", k, p)
		}
	}
}

// An API's page has its own types and the ones of every API, by status.
func TestServeProblems(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	ServeProblems(mux, Kinds(TypeQuota, TypeStale))
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/problems", nil))
	var page struct{ Problems []ProblemKind }
	if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || len(page.Problems) != len(common)+2 {
		t.Fatalf("/problems = %d %s, %v", w.Code, w.Body, err)
	}
	last := 0
	for _, k := range page.Problems {
		if k.Status < last || k.Title == "" {
			t.Errorf("%+v follows one with status %d", k, last)
		}
		last = k.Status
	}
}
