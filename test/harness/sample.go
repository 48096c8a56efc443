package harness

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/test/testdata"
)

// Sample writes the first n lines of the sample orders to a file and returns
// its path.
func Sample(t testing.TB, n int) string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(testdata.Orders))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	in := bufio.NewReader(z)
	for range n {
		line, err := in.ReadBytes('\n')
		if err != nil {
			t.Fatalf("the sample has fewer than %d lines: %v", n, err)
		}
		out.Write(line)
	}
	path := filepath.Join(t.TempDir(), "orders.jsonl")
	if err := os.WriteFile(path, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
