// Package processtest starts processes of tests, which end with the test.
package processtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/devkit/processes"
)

// Start starts a program. The end of the test kills it; if the test failed, the end of its
// standard error is shown, and OUTBOX_KEEP_LOGS in the environment names a folder that gets all
// of it.
func Start(t testing.TB, name, path string, env, args []string) *processes.Process {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), name+".log"))
	if err != nil {
		t.Fatal(err)
	}
	p := processes.Start(processes.Config{Name: name, Path: path, Args: args, Env: env, Log: log, Fail: t.Errorf})
	t.Cleanup(func() { end(t, name, p, log) })
	return p
}

func end(t testing.TB, name string, p *processes.Process, log *os.File) {
	if p.Running() {
		p.Kill()
	}
	if t.Failed() {
		lines := strings.Split(strings.TrimSpace(p.Log()), "\n")
		t.Logf("the end of %s's log:\n%s", name, strings.Join(lines[max(0, len(lines)-15):], "\n"))
	}
	if dir := os.Getenv("OUTBOX_KEEP_LOGS"); dir != "" && t.Failed() {
		_ = os.WriteFile(filepath.Join(dir, t.Name()+"-"+name+".log"), []byte(p.Log()), 0o600)
	}
	_ = log.Close()
}
