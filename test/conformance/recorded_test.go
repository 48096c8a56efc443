package conformance

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recordedDir holds Cassandra's answers, a file for each of the corpus.
const recordedDir = "testdata/cassandra-5.0"

// recording contains the answers to one file of the corpus, in its order: for
// each step its case and text.
type recording map[string][]string

// key identifies a step of a case; a case may contain the same text several
// times.
func key(c *corpusCase, i int) string { return fmt.Sprintf("%s %d %s", c.name, i, c.steps[i].text) }

func recordedPath(file string) string { return filepath.Join(recordedDir, file+".txt") }

// readRecording reads the answers of a file.
func readRecording(t testing.TB, f corpusFile) recording {
	t.Helper()
	text, err := os.ReadFile(recordedPath(f.name))
	if errors.Is(err, os.ErrNotExist) {
		return recording{}
	}
	if err != nil {
		t.Fatal(err)
	}
	r := recording{}
	for block := range strings.SplitSeq(string(text), "\n\n") {
		head, answer, ok := strings.Cut(strings.Trim(block, "\n"), "\n= ")
		if ok {
			r[head] = strings.Split(answer, "\n= ")
		}
	}
	return r
}

// write stores the answers in the order of the corpus.
func (r recording) write(t testing.TB, f corpusFile) {
	t.Helper()
	var b strings.Builder
	for _, c := range f.cases {
		for i := range c.steps {
			fmt.Fprintf(&b, "%s\n", key(c, i))
			for _, line := range r[key(c, i)] {
				fmt.Fprintf(&b, "= %s\n", line)
			}
			b.WriteByte('\n')
		}
	}
	if err := os.MkdirAll(recordedDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(recordedPath(f.name), []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
