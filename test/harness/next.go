package harness

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const module = "github.com/scylla-outbox/scylla-outbox"

// Next builds outbox of this tree as the next version and returns its path: its version is
// "next", and one more migration adds a column to the outbox table. It needs no history of
// the repository and no network.
func Next(t testing.TB) string {
	t.Helper()
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatalf("find the root of module %s: %v", module, err)
	}
	migrations := filepath.Join(strings.TrimSpace(string(root)), "schema", "cql")
	all, err := filepath.Glob(filepath.Join(migrations, "*", "*.cql"))
	if err != nil || len(all) == 0 {
		t.Fatalf("no migrations in %s: %v", migrations, err)
	}
	dir := t.TempDir()
	migration, overlay, program := filepath.Join(dir, "next.cql"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "outbox")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {
		filepath.Join(migrations, "outbox", fmt.Sprintf("%03d_next.cql", len(all)+1)): migration,
	}})
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{migration: "ALTER TABLE {{.Keyspace}}.outbox_messages ADD next text;", overlay: string(replace)} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-ldflags", "-X "+module+"/internal/cli.Version=next", "-o", program, module+"/cmd/outbox").CombinedOutput(); err != nil {
		t.Fatalf("build the next version: %v\n%s", err, out)
	}
	return program
}
