package bench

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
)

func TestProfile_CreatesTheFolder(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "profile") }))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "a", "b", "allocs.pprof")
	if err := Profile(t.Context(), server.URL, file, 0); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "profile" {
		t.Errorf("the file contains %q, %v", b, err)
	}
}
