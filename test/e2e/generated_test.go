//go:build peers

package e2e

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/test/harness"
)

// oapiCodegen generates the clients in Go.
const oapiCodegen = "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2"

// Clients that two generators make from the descriptions of the running APIs compile, send
// messages, receive and settle them, read and resolve the dead letter, and make, change and list
// an order: in Go from OpenAPI 3.0, in TypeScript from 3.1.
func TestPeer_GeneratedClients(t *testing.T) {
	c := startCluster(t, "")
	addrs := harness.FreeAddrs(t, 3)
	secret, entry, _ := strings.Cut(strings.TrimSpace(harness.Must(t, "token", "operator", "--role", "operator")), "\n")
	conf := filepath.Join(t.TempDir(), "admin.yml")
	if err := os.WriteFile(conf, []byte("admin:\n  tokens: ["+entry+"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	queues := harness.Start(t, "subscriptions", "subscriptions", "--scylla-hosts", c.cqlAddr, "--kafka-seeds", c.kafkaAddr, "--subscriptions-addr", addrs[0], "--ops-addr", "off")
	admin := harness.Start(t, "admin", "admin", "--config", conf, "--scylla-hosts", c.cqlAddr, "--kafka-seeds", c.kafkaAddr, "--admin-addr", addrs[1], "--ops-addr", "off")
	intake := harness.Start(t, "messages", "messages", "--scylla-hosts", c.cqlAddr, "--kafka-seeds", c.kafkaAddr, "--messages-addr", addrs[2], "--ops-addr", "off")
	servers := map[string]string{"messages": addrs[2], "subscriptions": addrs[0], "admin": addrs[1], "orders": c.api}
	for _, addr := range servers {
		harness.Ready(t, addr)
	}
	for language, build := range map[string]func(t *testing.T, dir string, servers map[string]string) (program []string){
		"go": goClient, "typescript": typeScriptClient,
	} {
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", language))); err != nil {
			t.Fatal(err)
		}
		program := build(t, dir, servers)
		out := call(t, dir, append(program, "http://"+addrs[2], "http://"+addrs[0], "http://"+addrs[1], "http://"+c.api, secret, language)...)
		if ids := strings.Fields(out); len(ids) != 2 || ids[0] == ids[1] {
			t.Errorf("%s acknowledged a message and rejected one; it printed %q, want the id of the first and one dead letter", language, out)
		}
	}
	for _, p := range []*harness.Process{admin, queues, intake, c.relay, c.orders} {
		p.Stop()
	}
}

// describe writes the description of each API into dir.
func describe(t *testing.T, dir, path string, servers map[string]string) {
	t.Helper()
	for name, addr := range servers {
		resp, err := http.Get("http://" + addr + path) //nolint:noctx // the test ends with the process
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s of %s: %d %v", path, name, resp.StatusCode, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name+".json"), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func goClient(t *testing.T, dir string, servers map[string]string) (program []string) {
	t.Helper()
	describe(t, dir, "/openapi-3.0.json", servers)
	for name := range servers {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		call(t, dir, script(t, "tool"), oapiCodegen, "-generate", "types,client", "-package", name, "-o", name+"/client.go", name+".json")
	}
	call(t, dir, script(t, "retry"), "go mod download", "go", "mod", "download")
	call(t, dir, "go", "build", "-o", "client", ".")
	return []string{"./client"}
}

func typeScriptClient(t *testing.T, dir string, servers map[string]string) (program []string) {
	t.Helper()
	describe(t, dir, "/openapi.json", servers)
	call(t, dir, script(t, "retry"), "npm ci", "npm", "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
	for name := range servers {
		call(t, dir, "./node_modules/.bin/openapi-typescript", name+".json", "--default-non-nullable=false", "-o", name+".d.ts")
	}
	call(t, dir, "./node_modules/.bin/tsc")
	return []string{"node", "main.js"}
}

// script returns the path of a script of the tests.
func script(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs("../" + name)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// call runs a program in dir to its end, and returns its output.
func call(t *testing.T, dir string, program ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program[0], program[1:]...)
	cmd.Dir = dir
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s%s", strings.Join(program, " "), err, out, problems.String())
	}
	return string(out)
}
