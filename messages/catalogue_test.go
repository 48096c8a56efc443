package messages

import (
	"encoding/json"
	"os"
	"regexp"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/internal/apiserver"
	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
	"github.com/scylla-outbox/scylla-outbox/test/world"
)

// The server's catalogue and its description contain every problem type of messages and their
// client once, and those of all clients are in that of messages or of orders.
func TestProblems_AreInTheCatalogue(t *testing.T) {
	t.Parallel()
	listed, described := map[string]map[string]int{}, map[string]string{}
	for _, api := range apis(t) {
		srv := must(apiserver.New(api, apiserver.Config{}))
		var list struct{ Problems []httpapi.ProblemKind }
		if err := json.Unmarshal([]byte(world.Request(t, srv.Handler(), "GET", "/problems", "").Text), &list); err != nil {
			t.Fatal(err)
		}
		listed[api.Name], described[api.Name] = map[string]int{}, world.Request(t, srv.Handler(), "GET", "/openapi.json", "").Text
		for _, p := range list.Problems {
			listed[api.Name][p.Type]++
			if p.Status < 400 || p.Meaning == "" || p.Do == "" {
				t.Errorf("%+v is not whole", p)
			}
		}
	}
	urn := regexp.MustCompile(`urn:scylla-outbox:problem:[a-z-]+`)
	found := 0
	for file, apis := range map[string][]string{
		"problem.go": {"messages"}, "../internal/httpapi/types.go": {"messages"}, "../outbox/messages/client.go": {"messages"}, "../outbox/api/problem.go": {"messages", "orders"},
	} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, typ := range urn.FindAllString(string(source), -1) {
			found++
			in := 0
			for _, api := range apis {
				if listed[api][typ] == 1 && regexp.MustCompile(typ+"`").MatchString(described[api]) {
					in++
				}
			}
			if in == 0 {
				t.Errorf("%s of %s is not in the catalogue of %v once, or not described", typ, file, apis)
			}
		}
	}
	if found < 25 {
		t.Errorf("%d types were found", found)
	}
}
