package messages

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"github.com/danielgtaylor/huma/v2"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/orders"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// The server's catalogue and its description contain every problem type of
// messages and their client once.
func TestProblems_AreInTheCatalogue(t *testing.T) {
	t.Parallel()
	srv, err := orders.NewServer(must(orders.New(nil, orders.Config{})), orders.ServerConfig{Routes: []func(huma.API){NewAPI(withoutDatabase(t)).Register}, Problems: Problems()})
	if err != nil {
		t.Fatal(err)
	}
	var list struct{ Problems []httpapi.ProblemKind }
	r := world.Request(t, srv.Handler(), "GET", "/problems", "")
	if err := json.Unmarshal([]byte(r.Text), &list); err != nil {
		t.Fatal(err)
	}
	listed := map[string]int{}
	for _, p := range list.Problems {
		listed[p.Type]++
		if p.Status < 400 || p.Meaning == "" || p.Do == "" {
			t.Errorf("%+v is not whole", p)
		}
	}
	doc := world.Request(t, srv.Handler(), "GET", "/openapi.json", "").Text
	urn := regexp.MustCompile(`urn:scylla-outbox:problem:[a-z-]+`)
	found := 0
	for _, file := range []string{"problem.go", "../internal/httpapi/types.go", "../outbox/api/problem.go", "../outbox/messages/client.go"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, typ := range urn.FindAllString(string(source), -1) {
			found++
			if listed[typ] != 1 || !regexp.MustCompile(typ+"`").MatchString(doc) {
				t.Errorf("%s of %s is in the catalogue %d times, or not described", typ, file, listed[typ])
			}
		}
	}
	if found < 25 {
		t.Errorf("%d types were found", found)
	}
}
