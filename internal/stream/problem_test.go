package stream

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/internal/httpapi"
)

// The catalogue of the server contains every problem type of event streams once.
func TestProblems_AreInTheCatalogue(t *testing.T) {
	t.Parallel()
	listed := map[string]int{}
	for _, p := range slices.Concat(httpapi.CommonProblems(), Problems()) {
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
