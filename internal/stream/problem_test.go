package stream

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/orders"
)

// The catalogue of the server contains every problem type of event streams once.
func TestProblems_AreInTheCatalogue(t *testing.T) {
	t.Parallel()
	service, err := orders.New(nil, orders.Config{})
	if err != nil {
		t.Fatal(err)
	}
	srv, err := orders.NewServer(service, orders.ServerConfig{Problems: Problems()})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	srv.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost/problems", nil))
	var list struct{ Problems []httpapi.ProblemKind }
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	listed := map[string]int{}
	for _, p := range list.Problems {
		listed[p.Type]++
	}
	var types []string
	for _, file := range []string{"problem.go", "../httpapi/types.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, regexp.MustCompile(`urn:scylla-outbox:problem:[a-z-]+`).FindAllString(string(source), -1)...)
	}
	if len(types) < 10 {
		t.Errorf("%d types were found", len(types))
	}
	for _, typ := range types {
		if listed[typ] != 1 {
			t.Errorf("%s is in the catalogue %d times", typ, listed[typ])
		}
	}
}
