package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/scylla-outbox/scylla-outbox/internal/cli"
)

// outbox health asks the listener of its process, which may listen on all addresses, and
// reports why the process is not ready.
func TestHealth(t *testing.T) {
	t.Parallel()
	status := http.StatusOK
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			http.NotFound(w, r)
			return
		}
		w.WriteHeader(status)
		fmt.Fprintln(w, `{"problems":["waiting for ScyllaDB"]}`)
	}))
	defer srv.Close()
	_, port, _ := strings.Cut(srv.Listener.Addr().String(), ":")
	config := filepath.Join(t.TempDir(), "outbox.yaml")
	if err := os.WriteFile(config, []byte("admin: {addr: '0.0.0.0:"+port+"'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	health := func(command string) (int, string) {
		var out, errOut strings.Builder
		code := run(append([]string{"health", "--config", config}, strings.Fields(command)...), &out, &errOut)
		return code, errOut.String()
	}
	if code, text := health("subscriptions serve"); code != cli.ExitOK || text != "" {
		t.Errorf("of a ready process: exit status %d, %q", code, text)
	}
	status = http.StatusServiceUnavailable
	if code, text := health("relay"); code != cli.ExitFailed || !strings.Contains(text, "503") || !strings.Contains(text, "waiting for ScyllaDB") {
		t.Errorf("of a process that is not ready: exit status %d, %q", code, text)
	}
	srv.Close()
	if code, text := health("orders"); code != cli.ExitFailed || !strings.Contains(text, "hint: admin.addr") {
		t.Errorf("without a process: exit status %d, %q", code, text)
	}
	if code, text := health("schema migrate"); code != cli.ExitUsage || !strings.Contains(text, "no admin listener") {
		t.Errorf("of a command without a listener: exit status %d, %q", code, text)
	}
	if err := os.WriteFile(config, []byte("admin: {addr: 'off'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, text := health("relay"); code != cli.ExitUsage || !strings.Contains(text, "admin.addr") {
		t.Errorf("with the listener off: exit status %d, %q", code, text)
	}
}
