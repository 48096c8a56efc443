package layout

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// seqAttribute is a log attribute with the name of a column; in a list of columns a string follows.
var seqAttribute = regexp.MustCompile(`"seq",\s+[A-Za-z]`)

// otherWord is a log attribute of the ops listener, or of a shard, by the word for another thing: the
// admin API, and the name of a shard's checkpoints.
var otherWord = regexp.MustCompile(`"(admin", \w+\.URL|shard", [\w.]+\.String\(\))`)

// outcomeLabel is a label of a metric.
var outcomeLabel = regexp.MustCompile(`\[\]string\{[^}]*"outcome"[^}]*\}\)`)

// The number of an event is "sequence" in logs and in JSON, as in the HTTP APIs. Only columns are
// named seq, and stored fields with their names. The label of an outcome is "result".
func TestNames_OneForEachMeaning(t *testing.T) {
	t.Parallel()
	read := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			if slices.Contains([]string{"test", "examples", "docs", "deploy", "node_modules"}, rel) || len(rel) > 1 && strings.HasPrefix(d.Name(), ".") {
				return fs.SkipDir
			}
			return nil
		}
		if filepath.Ext(rel) != ".go" || strings.HasSuffix(rel, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		read++
		if s := seqAttribute.Find(text); s != nil {
			t.Errorf(`%s logs %s…: name the attribute "sequence"`, rel, s)
		}
		if s := otherWord.Find(text); s != nil {
			t.Errorf(`%s logs %s: "ops" has the address of the ops listener, "shard" the number of the shard, as in metrics`, rel, s)
		}
		if outcomeLabel.Match(text) {
			t.Errorf(`%s has a metric with the label "outcome": name it "result"`, rel)
		}
		if strings.Contains(string(text), "`json:\"seq\"") && rel != filepath.Join("dlq", "archive", "record.go") {
			t.Errorf(`%s has a JSON member "seq": name it "sequence"`, rel)
		}
		return nil
	})
	if err != nil || read < 300 {
		t.Errorf("%d files read, %v", read, err)
	}
}
