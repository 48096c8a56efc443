package main

import (
	"io"
	"regexp"
	"slices"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli/clitest"
)

// dotted is what settings look like, in backticks.
var dotted = regexp.MustCompile("`((?:scylla|kafka|http|admin|relay|dlq|schema|log|messages|watch|subscriptions|notifications|retention|verify)\\.[a-z_]+)\\b[^.(/`]*`")

// Every command, flag and setting that a document names is there.
func TestDocs_CommandsAndSettings(t *testing.T) {
	t.Parallel()
	var keys []string
	for _, s := range app.Settings {
		keys = append(keys, s.Key)
	}
	clitest.CheckDocuments(t, "../..", "outbox|go run ./cmd/outbox", 50, newRoot(io.Discard, io.Discard))
	named := 0
	clitest.Documents(t, "../..", func(file, text string) {
		for _, m := range dotted.FindAllStringSubmatch(text, -1) {
			named++
			if !slices.Contains(keys, m[1]) {
				t.Errorf("%s: %s is no setting", file, m[1])
			}
		}
	})
	if named < 50 {
		t.Errorf("found %d settings: the pattern is wrong", named)
	}
}
