package main

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/internal/app"
	"github.com/scylla-outbox/scylla-outbox/internal/cli/clitest"
)

// dotted is what settings look like, in backticks.
var dotted = regexp.MustCompile("`((?:scylla|kafka|http|admin|relay|dlq|schema|log|messages|watch|react|notifications|retention|verify)\\.[a-z_]+)\\b[^.(/`]*`")

// Every command, flag and setting that a document names is there.
func TestDocs_CommandsAndSettings(t *testing.T) {
	t.Parallel()
	var keys []string
	for _, s := range app.Settings {
		keys = append(keys, s.Key)
	}
	clitest.CheckDocuments(t, "../..", "outbox|go run ./cmd/outbox", 50, newRoot(io.Discard, io.Discard))
	named := 0
	err := filepath.WalkDir("../..", func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() && e.Name() == ".git" {
			return filepath.SkipDir
		}
		if filepath.Ext(file) != ".md" || e.Name() == "CHANGELOG.md" {
			return nil
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, m := range dotted.FindAllStringSubmatch(string(text), -1) {
			named++
			if !slices.Contains(keys, m[1]) {
				t.Errorf("%s: %s is no setting", file, m[1])
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if named < 50 {
		t.Errorf("found %d settings: the pattern is wrong", named)
	}
}
